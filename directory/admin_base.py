"""What the admin pages of all apps share: they stay quick at a million rows, and leave the record alone."""

import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar, cast

from django import forms
from django.contrib import admin
from django.core.paginator import Paginator
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

M = TypeVar("M", bound=models.Model)

JSON_LENGTH = 20_000


class CappedPaginator(Paginator[Any]):
    """Counts no further than CAP: an exact number of a million rows costs more than it tells."""

    CAP = 10_000

    @cached_property
    def count(self) -> int:
        rows = cast("QuerySet[Any]", self.object_list).order_by()
        return min(rows[: self.CAP + 1].count(), self.CAP)


def as_uuid(text: str) -> uuid.UUID | None:
    """The UUID that this is, if it is one."""
    try:
        return uuid.UUID(text.strip())
    except ValueError:
        return None


class QuickAdmin(admin.ModelAdmin[M]):
    """Lists that do not count everything, and find a row by its id without looking at the others."""

    paginator = CappedPaginator
    show_full_result_count = False
    list_per_page = 50
    # A count for every filter would be a walk over all rows for each.
    show_facets = admin.ShowFacets.NEVER

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[M], search_term: str
    ) -> tuple[QuerySet[M], bool]:
        wanted = as_uuid(search_term)
        if wanted is None:
            stretch = self.narrow_search(queryset) if search_term.strip() else queryset
            return super().get_search_results(request, stretch, search_term)
        names = [name for name in ("id", "task", "context") if name in self._uuid_names]
        condition = models.Q()
        for name in names:
            condition |= models.Q(**{name: wanted})
        return (queryset.filter(condition) if names else queryset.none()), False

    def narrow_search(self, queryset: QuerySet[M]) -> QuerySet[M]:
        """The rows that a text is looked for in; a list that grows without end narrows them."""
        return queryset

    @cached_property
    def _uuid_names(self) -> set[str]:
        """The columns of this model that hold a UUID, its own or another row's."""
        fields = self.model._meta.concrete_fields
        return {field.name for field in fields if isinstance(getattr(field, "target_field", field), models.UUIDField)}


class RecordAdmin(QuickAdmin[M]):
    """Rows that machines write: to be read here, and changed nowhere. JSON is laid out for people."""

    hidden: ClassVar[Sequence[str]] = ()
    actions: Any = None

    def __init__(self, model: type[M], site: admin.AdminSite) -> None:
        super().__init__(model, site)
        for field in model._meta.concrete_fields:
            if isinstance(field, models.JSONField):
                setattr(self, f"{field.name}_json", _laid_out(field))

    def get_fields(self, request: HttpRequest, obj: M | None = None) -> Any:
        shown = [field for field in self.model._meta.concrete_fields if field.name not in self.hidden]
        names = [f"{field.name}_json" if isinstance(field, models.JSONField) else field.name for field in shown]
        return [*self.readonly_fields, *names]

    def get_readonly_fields(self, request: HttpRequest, obj: M | None = None) -> Any:
        return self.get_fields(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False


def one_of(column: str, *words: str) -> type[admin.SimpleListFilter]:
    """A filter on a column that holds one of a few words; Django's own would read all rows to find them."""

    class WordFilter(admin.SimpleListFilter):
        title = column
        parameter_name = column

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [(word, word) for word in words]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(**{column: self.value()}) if self.value() in words else queryset

    return WordFilter


def _laid_out(field: "models.JSONField[Any, Any]") -> Callable[[models.Model], SafeString]:
    def show(row: models.Model) -> SafeString:
        text = json.dumps(getattr(row, field.name), indent=2, ensure_ascii=False)
        if len(text) > JSON_LENGTH:
            text = f"{text[:JSON_LENGTH]}\n… {len(text) - JSON_LENGTH} more characters"
        return format_html("<pre>{}</pre>", text)

    show.short_description = field.verbose_name  # type: ignore[attr-defined]
    return show


class LinesField(forms.CharField):
    """A JSON list of words or sentences, one to a line."""

    widget = forms.Textarea(attrs={"rows": 4, "cols": 80})

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"required": False, "help_text": "One to a line.", **kwargs})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(str(line) for line in value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        lines: Iterable[str] = (super().to_python(value) or "").splitlines()
        return [line.strip() for line in lines if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(self.to_python(data) != (initial or []))
