// A page that is open is sent anew when something happens. What is typed, chosen or unfolded stays.
// Every page works without this file: then it shows what happened until it was loaded.
const main = document.querySelector("main"), live = find("live");
const STREAMS = 4; // of a browser: over HTTP/1.1 it has six connections to a server, and others have to load pages
let source = null, paused = false, lost = false, opening = false, retry = 0, asked = 0, shown = 0, leave = () => {};
const say = text => { if (live) { live.textContent = text; live.classList.toggle("off", text !== "live"); } };
const isWanted = () => main.dataset.live && !paused && !document.hidden;
const stop = () => { source?.close(); source = null; leave(); };

// Takes one of the streams of this browser, and keeps it until `leave` is called or the page is gone.
async function takeStream() {
  for (let number = 0; number < STREAMS; number++) {
    const taken = await new Promise(tell => navigator.locks.request(`interlock stream ${number}`, { ifAvailable: true },
      lock => { tell(Boolean(lock)); return lock && new Promise(end => { leave = end; }); }));
    if (taken) return true;
  }
}
async function follow() {
  clearTimeout(retry);
  if (live) live.hidden = !main.dataset.live;
  for (const button of document.querySelectorAll("[data-pause]")) { button.hidden = false; button.textContent = paused ? "Go on" : "Pause"; }
  if (source && (!isWanted() || source.readyState === EventSource.CLOSED)) stop();
  if (!isWanted() || source || opening) return;
  opening = true;
  const taken = await takeStream();
  opening = false;
  if (taken && !isWanted()) return leave();
  if (!taken) { say("live"); retry = setTimeout(refresh, 1000); return; } // as many listen as may: this one asks
  source = new EventSource(main.dataset.live);
  source.addEventListener("change", event => event.data ? show(event.data, ++asked) : refresh());
  source.addEventListener("open", () => { if (lost) refresh(); lost = false; say("live"); });
  source.addEventListener("error", () => {
    lost = true; say("connecting…");
    if (source?.readyState === EventSource.CLOSED) retry = setTimeout(refresh, 1000);
  });
}
async function refresh() {
  const mine = ++asked, answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!answer?.ok) return follow();
  if (new URL(answer.url).pathname !== location.pathname) return say("signed out");
  show(await answer.text(), mine);
}
// Shows what the server sent, unless something later is shown.
function show(text, number) {
  if (number < shown) return;
  const page = new DOMParser().parseFromString(text, "text/html"), next = page.querySelector("main");
  [shown, document.title, main.dataset.live] = [number, page.title, next.dataset.live || ""];
  morph(main, next);
  morph(document.querySelector("nav .links"), page.querySelector("nav .links"));
  prepare();
  follow();
}
function morph(old, next) {
  if (old.nodeType === Node.TEXT_NODE) { if (old.data !== next.data) old.data = next.data; return; }
  if (old.type === "range" && old !== document.activeElement) { old.max = next.max; old.value = next.value; }
  if (old.nodeType !== Node.ELEMENT_NODE || old.matches("input, textarea, select, #views, #save, #chosen, #bulk, #commands")) return;
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const named = new Map([...old.children].filter(child => child.id).map(child => [child.id, child]));
  let place = old.firstChild;
  for (const child of [...next.childNodes]) {
    const same = child.id && named.get(child.id);
    if (same && same !== place) old.insertBefore(same, place);
    const fits = same || (place && place.nodeType === child.nodeType && place.nodeName === child.nodeName && !place.id && !child.id && place);
    if (fits) { morph(fits, child); place = fits.nextSibling; } else old.insertBefore(document.importNode(child, true), place);
  }
  while (place) { const after = place.nextSibling; place.remove(); place = after; }
}
document.addEventListener("click", event => {
  if (!event.target.matches("[data-pause], #live")) return;
  say((paused = !paused) ? "paused" : "live");
  if (paused) follow(); else refresh();
});
document.addEventListener("visibilitychange", () => { if (isWanted()) refresh(); else follow(); });
addEventListener("pagehide", stop);
addEventListener("pageshow", event => { if (event.persisted) follow(); });
follow();
