"""The OpenAPI description of the endpoints, generated from their table."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import msgspec

import holdfast
from holdfast.rest.api import ENDPOINTS, PATTERNS, Endpoint
from holdfast.rest.shapes import jobs as shapes

_REFERENCE: Final = "#/components/schemas/{name}"
_PROBLEMS: Final = {
    400: "The request is invalid.",
    401: "A token is required, or the token is wrong.",
    403: "The token does not allow this, or the request came from another site.",
    404: "There is no such job, vertex, checkpoint or request.",
    413: "The request is too large.",
    415: "The request must be JSON.",
    421: "The server does not have this host name.",
    429: "There are too many requests.",
}


@cache
def description() -> dict[str, Any]:
    """Return the description, in OpenAPI 3.1."""
    bodies = (endpoint.body for endpoint in ENDPOINTS if endpoint.body is not None)
    answers = (endpoint.answer for endpoint in ENDPOINTS)
    types = [*dict.fromkeys([shapes.Errors, *answers, *bodies])]
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


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    return schema


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    problems = {**_PROBLEMS, **endpoint.errors}
    answers: dict[str, Any] = {
        str(status): _content(text, shapes.Errors) for status, text in sorted(problems.items())
    }
    answers[str(endpoint.status)] = _content("Success.", endpoint.answer)
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
