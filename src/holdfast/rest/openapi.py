"""The OpenAPI description of the endpoints, made from their table."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import msgspec

import holdfast
from holdfast.rest import shapes
from holdfast.rest.api import ENDPOINTS, PATTERNS, Endpoint

__all__ = ["description"]

_REFERENCE: Final = "#/components/schemas/{name}"
_PROBLEMS: Final = {
    400: "What was sent is not what it must be.",
    401: "A token is needed, or another one.",
    403: "The token does not allow this, or the request came from elsewhere.",
    404: "There is no such job, vertex, checkpoint or request.",
    413: "The request is too large.",
    415: "The request must be JSON.",
    421: "The server has not this name.",
    429: "There are too many requests.",
}


@cache
def description() -> dict[str, Any]:
    """Return the description; version 3.1."""
    types = [*dict.fromkeys([shapes.Errors, *map(_answer, ENDPOINTS), *_bodies()])]
    _, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": holdfast.__version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _answer(endpoint: Endpoint) -> Any:
    return endpoint.answer


def _bodies() -> list[Any]:
    return [endpoint.body for endpoint in ENDPOINTS if endpoint.body is not None]


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    return schema


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    problems = {**_PROBLEMS, **endpoint.errors}
    answers: dict[str, Any] = {
        str(status): _content(text, shapes.Errors) for status, text in sorted(problems.items())
    }
    answers[str(endpoint.status)] = _content("It is done.", endpoint.answer)
    operation: dict[str, Any] = {
        "operationId": _name(endpoint),
        "summary": endpoint.summary,
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": answers,
    }
    if endpoint.body is not None:
        content = {"application/json": {"schema": _schema(endpoint.body)}}
        operation["requestBody"] = {"required": False, "content": content}
    return operation


def _name(endpoint: Endpoint) -> str:
    return re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}").strip("_")


def _content(text: str, kind: Any) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": _schema(kind)}}}


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": f"^{PATTERNS[name]}$"},
        }
        for name in re.findall(r"\{(\w+)\}", endpoint.path)
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": parameter.name,
            "in": "query",
            "required": parameter.required,
            "schema": dict(parameter.schema),
        }
        for parameter in endpoint.query
    ]
