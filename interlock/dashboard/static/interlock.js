// Keys, choosing, saved views, the slider and the theme. Every page works without this file.
const find = id => document.getElementById(id), theme = find("theme"), root = document.documentElement;
root.dataset.theme = localStorage.getItem("theme") || "";
theme?.addEventListener("click", () => {
  const now = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  localStorage.setItem("theme", root.dataset.theme = now === "dark" ? "light" : "dark");
});
const places = { o: "", j: "jobs", r: "runs", i: "inbox", d: "dead-letters", n: "start", q: "queues", w: "workers", s: "schedules", l: "lifecycles" };
let going = false; // g was the key before
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), textarea, select")) return;
  if (going && event.key in places) location.href = document.querySelector("a.brand").href + places[event.key];
  else if (event.key === "/") { find("find")?.focus(); event.preventDefault(); }
  else if (event.key === "?") find("keys")?.showModal();
  else if (["j", "k", "x"].includes(event.key)) moveInRows(event.key);
  going = event.key === "g";
});

// Rows of a list: j and k move, x chooses, enter opens. How many are chosen is said above them.
const boxes = () => [...document.querySelectorAll("table.rows input[name=id]")];
function moveInRows(key) {
  const links = [...document.querySelectorAll("table.rows a.id")], at = links.indexOf(document.activeElement);
  if (key !== "x") links[Math.max(0, Math.min(links.length - 1, at + (key === "j" ? 1 : -1)))]?.focus();
  else if (at >= 0) boxes()[at]?.click();
}
function countChosen() {
  if (!find("bulk")) return;
  const chosen = boxes().filter(box => box.checked), all = document.querySelector("#bulk input[name=all]")?.checked;
  for (const box of boxes()) box.closest("tr").classList.toggle("on", box.checked || Boolean(all));
  find("chosen").textContent = all ? "All that match" : chosen.length ? `${chosen.length} chosen` : "Choose rows";
  find("bulk").classList.toggle("on", chosen.length > 0 || Boolean(all));
}
document.addEventListener("change", event => {
  if (event.target.id === "page") for (const box of boxes()) box.checked = event.target.checked;
  if (event.target.matches("#page, [name=id], [name=all]")) countChosen();
  if (event.target.id === "version") event.target.form.submit();
});

// Views that were saved: a name and a URL, in this browser alone.
const views = find("views");
const make = (tag, text, facts = {}) => Object.assign(document.createElement(tag), { textContent: text, ...facts });
function showViews() {
  const key = `views ${views.dataset.views}`, saved = JSON.parse(localStorage.getItem(key) || "{}");
  const keep = () => { localStorage.setItem(key, JSON.stringify(saved)); showViews(); };
  views.replaceChildren(...Object.keys(saved).map(name => {
    const chip = make("span", "", { className: "chip" }), onclick = () => { delete saved[name]; keep(); };
    chip.append(make("a", name, { href: saved[name].startsWith("?") ? saved[name] : "?" }));
    chip.append(make("button", "×", { type: "button", className: "quiet", ariaLabel: `Forget the view ${name}`, onclick }));
    return chip;
  }));
  const save = () => { const name = prompt("Name of this view"); if (name) { saved[name] = location.search || "?"; keep(); } };
  find("save").replaceChildren(make("button", "Save view…", { type: "button", onclick: save }));
  views.hidden = find("save").hidden = false;
}
if (views) showViews();
const copy = (button, text) => navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; });
for (const text of document.querySelectorAll("pre.copy"))
  text.before(make("button", "Copy", { type: "button", onclick: event => copy(event.target, text.textContent) }));
document.addEventListener("click", event => {
  if (event.target.dataset.copy) copy(event.target, find(`${event.target.dataset.copy}-value`).textContent);
});
// What only works with this file is hidden without it.
function prepare() {
  for (const hidden of document.querySelectorAll("[data-copy], #page, #theme")) hidden.hidden = false;
  countChosen();
}
// How long ago something was goes on while nothing else happens.
setInterval(() => document.querySelectorAll("time[datetime]").forEach(time => {
  const ms = Date.now() - Date.parse(time.dateTime), sizes = [[864e5, "d"], [36e5, "h"], [6e4, "m"], [1e3, "s"]];
  const [size, unit] = sizes.find(([each]) => Math.abs(ms) >= each) || [], length = `${Math.floor(Math.abs(ms) / size)}${unit}`;
  time.textContent = !size ? "now" : ms > 0 ? `${length} ago` : `in ${length}`;
}), 10_000);
prepare();
