"""A page that shows the operations of a service: made here, without scripts, and with nothing from elsewhere."""

import json
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
pre { background: #f4f4f4; padding: .8em; overflow: auto }
h2 { border-top: 1px solid #ccc; padding-top: 1em }
td { text-align: left; padding-right: 1em }
"""


def docs_page(schema: dict[str, Any]) -> str:
    """All operations, each with what it takes, an example, and what it may answer."""
    parts = [f"<h1>{escape(schema['info']['title'])}</h1>", f"<p>{escape(schema['info']['description'])}</p>"]
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(schema, path, method, operation))
    head = f"<meta charset=utf-8><title>{escape(schema['info']['title'])}</title><style>{STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(parts)}</body></html>"


def _operation(schema: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation.get('description', ''))}</p>"]
    given = [
        f"<tr><td><code>{escape(one['name'])}</code><td>{escape(one.get('description', ''))}"
        for one in operation.get("parameters", ())
    ]
    parts += ["<table>", *given, "</table>"] if given else []
    for media, body in operation.get("requestBody", {}).get("content", {}).items():
        name = body["schema"].get("$ref", "").rpartition("/")[2]
        for example in schema["components"]["schemas"].get(name, {}).get("examples", ()):
            parts.append(f"<p>{escape(media)}</p><pre>{escape(json.dumps(example, indent=2))}</pre>")
    rows = [
        f"<tr><td>{status}<td>{escape(one.get('description', ''))}" for status, one in operation["responses"].items()
    ]
    return "".join([*parts, "<table>", *rows, "</table>"])
