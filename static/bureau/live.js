// Keeps a mission's page and the times on every page current. Without it, reloading does the same.
(() => {
  "use strict";

  // --- Times: "3 minutes ago" stays true ---------------------------------------------------------

  const units = [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60]];

  function ago(moment) {
    const seconds = (Date.now() - moment) / 1000;
    for (const [name, length] of units) {
      const number = Math.floor(seconds / length);
      if (number >= 1) return `${number} ${name}${number > 1 ? "s" : ""} ago`;
    }
    return "just now";
  }

  function refreshTimes() {
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const text = ago(Date.parse(time.dateTime));
      if (time.textContent !== text) time.textContent = text;
    }
  }

  setInterval(refreshTimes, 20_000);

  // --- What was opened stays open when it is replaced ------------------------------------------------

  function openedIn(root) {
    return Array.from(root.querySelectorAll("details[open][id]"), (one) => one.id);
  }

  function openAgain(ids) {
    for (const id of ids) {
      const one = document.getElementById(id);
      if (one) one.open = true;
    }
  }

  // Who asked may have been replaced by the stream meanwhile: the one in its place asks again, and knows more.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (!event.detail.requestConfig?.elt.isConnected) event.detail.shouldSwap = false;
  });

  let openedBefore = [];
  document.addEventListener("htmx:beforeSwap", (event) => { openedBefore = openedIn(event.detail.target); });
  document.addEventListener("htmx:afterSwap", () => openAgain(openedBefore));

  // A link to something folded unfolds it, and moves there for the keyboard, too.
  function unfold(hash) {
    const one = hash.length > 1 ? document.getElementById(hash.slice(1)) : null;
    if (!one || one.tagName !== "DETAILS") return;
    one.open = true;
    one.scrollIntoView({ block: "nearest" });
    one.querySelector("summary").focus({ preventScroll: true });
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#']");
    if (link) setTimeout(() => unfold(link.getAttribute("href")), 0);
  });
  unfold(location.hash);

  // --- A mission's news ----------------------------------------------------------------------------

  const HIDDEN_MS = 60_000;
  const RETRY_MS = [1000, 2000, 5000, 10_000, 30_000];

  function follow(root) {
    const note = root.querySelector("[data-connection]");
    let seen = Number(root.dataset.seq);
    let source = null;
    let failures = 0;
    let timer = 0;
    let isOver = false;

    function say(text) {
      if (note && note.textContent !== text) note.textContent = text;
    }

    function close() {
      clearTimeout(timer);
      if (source) source.close();
      source = null;
    }

    function open() {
      close();
      if (isOver) return;
      // The number is ours to keep: the browser forgets it when a connection fails for good.
      source = new EventSource(`${root.dataset.stream}?after=${seen}`);
      source.onopen = () => { failures = 0; say("Live"); };
      source.onerror = () => {
        close();
        // The server ends a stream every few minutes to look at the session again; that is no news.
        if (failures > 0) say("Connection lost, trying again…");
        if (failures === 3) reloadIfSignedOut();
        timer = setTimeout(open, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
      };
      source.addEventListener("news", (event) => { seen = Number(event.lastEventId); show(event.data); });
      source.addEventListener("end", () => { isOver = true; close(); say(""); });
    }

    function reloadIfSignedOut() {
      fetch(location.href, { redirect: "manual" })
        .then((answer) => { if (answer.type === "opaqueredirect") location.reload(); })
        .catch(() => {});
    }

    function show(html) {
      const opened = openedIn(root);
      // Every element in it names the region that it replaces.
      htmx.swap(root, html, { swapStyle: "none", swapDelay: 0, settleDelay: 0 });
      openAgain(opened);
    }

    // A browser opens six connections to a server at most: tabs that nobody looks at give theirs back.
    document.addEventListener("visibilitychange", () => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(close, HIDDEN_MS);
      else if (!source) open();
    });
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", (event) => { if (event.persisted) open(); });
    open();
  }

  // --- Forms: once is enough ------------------------------------------------------------------------

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "yes";
    for (const button of form.querySelectorAll("button[type=submit]")) button.setAttribute("aria-disabled", "true");
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) {
      delete form.dataset.sent;
      for (const button of form.querySelectorAll("[aria-disabled]")) button.removeAttribute("aria-disabled");
    }
  });

  // --- Menus close when one looks elsewhere ----------------------------------------------------------

  function closeMenus(except) {
    for (const menu of document.querySelectorAll("details.account[open], details.confirm[open]")) {
      if (!menu.contains(except)) menu.open = false;
    }
  }

  document.addEventListener("click", (event) => closeMenus(event.target));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const menu = event.target.closest?.("details.account[open], details.confirm[open]");
    closeMenus(null);
    menu?.querySelector("summary").focus();
  });

  // Ctrl+Enter sends what is being written.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea")) {
      event.preventDefault();
      event.target.form?.requestSubmit();
    }
  });

  const root = document.querySelector("[data-stream]");
  if (root) follow(root);
})();
