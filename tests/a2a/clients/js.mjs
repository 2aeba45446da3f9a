// The client of @a2a-js/sdk does one thing of each kind, and prints what it saw as JSON.
// node --input-type=module - CARD_BASE KEY JSONRPC|HTTP+JSON 1.0|0.3 PUSH_URL < js.mjs
import { randomUUID } from 'node:crypto';
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';

const [base, key, binding, version, url] = process.argv.slice(2);
const fetchImpl = (input, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set('Authorization', `Bearer ${key}`);
  return fetch(input, { ...init, headers });
};
const options = { fetchImpl, legacyCompat: { enabled: true } };
const resolver = new DefaultAgentCardResolver(options);
const card = await resolver.resolve(base);
card.supportedInterfaces = card.supportedInterfaces.filter(
  (each) => each.protocolBinding === binding && each.protocolVersion === version,
);
const client = await new ClientFactory({
  transports: [new JsonRpcTransportFactory(options), new RestTransportFactory(options)],
  cardResolver: resolver,
}).createFromAgentCard(card);

const tenant = '';
const STATES = ['', 'submitted', 'working', 'completed', 'failed', 'canceled', 'input-required', 'rejected', 'auth-required'];
const state = (task) => STATES[task.status.state];
const request = (text, { taskId = '', now = false, push = undefined } = {}) => ({
  tenant,
  message: {
    messageId: randomUUID(), role: 1, contextId: '', taskId, metadata: undefined, extensions: [], referenceTaskIds: [],
    parts: [{ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' }],
  },
  configuration: {
    acceptedOutputModes: [], historyLength: undefined, returnImmediately: now, taskPushNotificationConfig: push,
  },
  metadata: undefined,
});
const send = async (text, more) => {
  const answer = await client.sendMessage(request(text, more));
  return answer.payload?.value ?? answer;
};
const failure = async (act) => {
  try { await act(); } catch (error) { return error.constructor.name.replace(/^(JsonRpc|Rest)/, ''); }
};
const follow = async (stream) => {
  const kinds = [];
  for await (const item of stream) kinds.push(item.payload.$case);
  return kinds;
};

const seen = {};
const task = await send('Hello');
seen.send = [state(task), (await client.getTask({ tenant, id: task.id })).artifacts[0].parts[0].content.value];
seen.stream = await follow(client.sendMessageStream(request('Hello')));
const asked = await send('ask');
const answered = await send('That one', { taskId: asked.id });
seen.ask = [state(asked), state(answered), asked.id === answered.id];
const lost = client.sendMessageStream(request('hold'));
const held = (await lost.next()).value.payload.value;
await lost.return();
seen.resume = [];
for await (const item of client.resubscribeTask({ tenant, id: held.id })) {
  if (!seen.resume.length) {
    seen.cancel = state(await client.cancelTask({ tenant, id: held.id, metadata: undefined }));
  }
  seen.resume.push(item.payload.$case);
  seen.resumed = state(item.payload.value);
}
seen.canceledTwice = await failure(() => client.cancelTask({ tenant, id: held.id, metadata: undefined }));
seen.missing = await failure(() => client.getTask({ tenant, id: 'nonsense' }));
if (version === '1.0') {
  const page = await client.listTasks({ tenant, contextId: '', status: 0, pageToken: '' });
  seen.list = page.tasks.length;
}
const push = { tenant, id: 'mine', taskId: task.id, url, token: 't', authentication: undefined };
const made = await client.createTaskPushNotificationConfig(push);
seen.push = [made.id, made.url, made.token];
await send('Hello', { push: { ...push, taskId: '' } });
seen.extendedCard = (await client.getAgentCard()).name;
console.log(JSON.stringify(seen));
