// Theme, and the keys that move between pages. Every page works without this file.
const theme = document.getElementById("theme");
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
if (theme) {
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("theme", next);
  });
}
const places = { o: "", j: "jobs", r: "runs", i: "inbox", d: "dead-letters", q: "queues", w: "workers", s: "schedules", l: "lifecycles" };
let going = false;
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const brand = document.querySelector("a.brand");
  if (going && event.key in places) location.href = brand.href + places[event.key];
  going = event.key === "g";
  if (event.key === "/") { document.getElementById("find")?.focus(); event.preventDefault(); }
  if (event.key === "?") document.getElementById("keys")?.showModal();
  if ("jkx".includes(event.key)) moveInRows(event.key);
});

// Rows of a list: j and k move, x chooses, enter opens. How many are chosen is said above them.
const boxes = () => [...document.querySelectorAll("table.rows input[name=id]")];
function moveInRows(key) {
  const links = [...document.querySelectorAll("table.rows a.id")];
  const at = links.indexOf(document.activeElement);
  if (key !== "x") links[Math.max(0, Math.min(links.length - 1, at + (key === "j" ? 1 : -1)))]?.focus();
  else if (at >= 0) boxes()[at]?.click();
}
function countChosen() {
  const chosen = boxes().filter(box => box.checked).length;
  const all = document.querySelector("#bulk input[name=all]")?.checked;
  document.getElementById("chosen").textContent = all ? "All that match" : `${chosen} chosen`;
}
const head = document.querySelector("table.rows thead th");
if (head && document.getElementById("bulk")) {
  const page = document.createElement("input");
  page.type = "checkbox";
  page.setAttribute("aria-label", "Choose the page");
  page.addEventListener("change", () => { for (const box of boxes()) box.checked = page.checked; countChosen(); });
  document.getElementById("bulk").prepend(page);
  document.addEventListener("change", event => { if (event.target.matches("[name=id], [name=all]")) countChosen(); });
  countChosen();
}

// Views that were saved: a name and a URL, in this browser alone.
const views = document.getElementById("views");
function showViews() {
  const key = `views ${views.dataset.views}`;
  const saved = JSON.parse(localStorage.getItem(key) || "{}");
  const keep = () => { localStorage.setItem(key, JSON.stringify(saved)); showViews(); };
  const make = (tag, text, act) => { const made = document.createElement(tag); made.textContent = text; if (act) { made.type = "button"; made.addEventListener("click", act); } return made; };
  views.replaceChildren(...Object.keys(saved).map(name => {
    const chip = make("span", "");
    const link = make("a", name);
    const away = make("button", "×", () => { delete saved[name]; keep(); });
    link.href = saved[name].startsWith("?") ? saved[name] : "?";
    away.className = "quiet";
    away.setAttribute("aria-label", `Forget the view ${name}`);
    chip.className = "chip";
    chip.append(link, away);
    return chip;
  }), make("button", "Save view…", () => { const name = prompt("Name of this view"); if (name) { saved[name] = location.search || "?"; keep(); } }));
  views.hidden = false;
}
if (views) showViews();
for (const text of document.querySelectorAll("pre.copy")) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy" });
  button.addEventListener("click", () => navigator.clipboard.writeText(text.textContent).then(() => { button.textContent = "Copied"; }));
  text.before(button);
}
const slider = document.getElementById("version");
if (slider) slider.addEventListener("change", () => slider.form.submit());

// A page that is open shows itself anew when something happens. What is typed, chosen or unfolded stays.
const main = document.querySelector("main[data-live]");
const live = document.getElementById("live");
let source = null;
let paused = false;
function follow() {
  const wanted = main && main.dataset.live && !paused && !document.hidden;
  if (wanted && !source) {
    source = new EventSource(main.dataset.live);
    source.addEventListener("change", event => refresh(event.data));
    source.addEventListener("open", () => { live.textContent = "live"; });
    source.addEventListener("error", () => { live.textContent = "connecting…"; });
  } else if (!wanted && source) {
    source.close();
    source = null;
  }
}
async function refresh(change = "") {
  const answer = await fetch(location.href, { headers: { Accept: "text/html", "Interlock-Change": change } });
  if (!answer.ok || new URL(answer.url).pathname !== location.pathname) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const next = page.querySelector("main");
  document.title = page.title;
  main.dataset.live = next.dataset.live || "";
  morph(main, next);
  follow();
}
function morph(old, next) {
  if (old.nodeType === Node.TEXT_NODE) { if (old.data !== next.data) old.data = next.data; return; }
  if (old.nodeType !== Node.ELEMENT_NODE || old.matches("input, textarea, select, #views, #chosen, #bulk, #commands")) return;
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const named = new Map([...old.children].filter(child => child.id).map(child => [child.id, child]));
  let place = old.firstChild;
  for (const child of [...next.childNodes]) {
    const same = child.id && named.get(child.id);
    if (same && same !== place) old.insertBefore(same, place);
    if (same) { morph(same, child); place = same.nextSibling; continue; }
    const fits = place && place.nodeType === child.nodeType && place.nodeName === child.nodeName && !place.id && !child.id;
    if (fits) { morph(place, child); place = place.nextSibling; continue; }
    old.insertBefore(document.importNode(child, true), place);
  }
  while (place) { const after = place.nextSibling; place.remove(); place = after; }
}
if (main) {
  live.hidden = false;
  live.addEventListener("click", () => { paused = !paused; live.textContent = paused ? "paused" : "live"; follow(); if (!paused) refresh(); });
  document.addEventListener("visibilitychange", () => { follow(); if (source) refresh(); });
  follow();
}
