"""The page to try the API on: made from the OpenAPI text, without files from elsewhere."""

import re
from base64 import b64encode
from hashlib import sha256

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Interlock API</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
summary { cursor: pointer; padding: .3rem 0 } code, pre, textarea { font-family: ui-monospace, monospace }
summary b { display: inline-block; width: 3.5rem } details { border-bottom: 1px solid #ddd }
label { display: block; margin: .3rem 0 } input, textarea { width: 100%; box-sizing: border-box; padding: .3rem }
pre { background: #f4f4f4; padding: .6rem; overflow: auto; max-height: 30rem } small { color: #666 }
</style>
<h1>Interlock API</h1>
<p><a href="openapi.json">openapi.json</a>. A key is made by <code>interlock key create NAME --scope admin</code>.</p>
<label>Key <input id="key" type="password" autocomplete="off" placeholder="ilk_…"></label>
<main></main>
<script>
const make = (tag, text, into) => into.appendChild(Object.assign(document.createElement(tag), {textContent: text}));
function field(into, name, tag = "input") {
  const label = make("label", name, into);
  return label.appendChild(Object.assign(document.createElement(tag), {name}));
}
function draw(path, method, one, schemas) {
  const box = document.querySelector("main").appendChild(document.createElement("details"));
  const head = make("summary", "", box);
  make("b", method.toUpperCase(), head); make("code", path, head); make("span", "  " + one.summary, head);
  make("small", one["x-scope"] ? "  scope " + one["x-scope"] : "", head);
  const form = box.appendChild(document.createElement("form"));
  const fields = one.parameters.map(p => [p, field(form, p.name + (p.required ? " *" : ""))]);
  let body = null;
  if (one.requestBody) {
    body = field(form, "body", "textarea"); body.rows = 5;
    const name = one.requestBody.content["application/json"].schema["$ref"].split("/").pop();
    const wanted = schemas[name].required || [];
    body.value = JSON.stringify(Object.fromEntries(wanted.map(key => [key, ""])), null, 2);
    make("small", "may have: " + Object.keys(schemas[name].properties || {}).join(", "), form);
  }
  make("p", "", form).appendChild(Object.assign(document.createElement("button"), {textContent: "Send"}));
  const out = box.appendChild(document.createElement("pre")); out.hidden = true;
  form.onsubmit = async event => {
    event.preventDefault();
    let url = path, query = new URLSearchParams(), headers = {};
    for (const [p, input] of fields) {
      if (!input.value) continue;
      if (p.in === "path") url = url.replace("{" + p.name + "}", encodeURIComponent(input.value));
      else if (p.in === "query") query.append(p.name, input.value);
      else headers[p.name] = input.value;
    }
    const key = document.querySelector("#key").value;
    if (key) headers.Authorization = "Bearer " + key;
    if (body) headers["Content-Type"] = "application/json";
    if ([...query].length) url += "?" + query;
    const answer = await fetch(url, {method: method.toUpperCase(), headers, body: body ? body.value : undefined});
    const text = await answer.text();
    let shown = text;
    try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch {}
    out.hidden = false; out.textContent = answer.status + " " + answer.statusText + "\\n\\n" + shown;
  };
}
fetch("openapi.json").then(answer => answer.json()).then(text => {
  for (const [path, methods] of Object.entries(text.paths))
    for (const [method, one] of Object.entries(methods)) draw(path, method, one, text.components.schemas);
});
</script>
</html>
"""


def digest_of(tag: str) -> str:
    """What a browser knows the page's own style or script by; it runs no other."""
    (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", PAGE, re.DOTALL)
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


# Nothing is loaded from elsewhere, nothing but the page's own script runs, and no other page may frame it.
POLICY = (
    f"default-src 'none'; script-src {digest_of('script')}; style-src {digest_of('style')}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {"Content-Security-Policy": POLICY, "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"}
