// The script of the dashboard. Everything works without it, as links and forms; with it pages follow the database,
// times are the viewer's, and there are shortcuts. No framework, no build, nothing inline.
(() => {
  "use strict";

  const root = document.documentElement;
  root.classList.add("js");

  // ---------------------------------------------------------------- theme

  const THEME = "penstock-theme";
  const stored = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const store = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private window */ } };
  const setTheme = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  setTheme(stored(THEME));
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const toggleTheme = () => {
    const theme = isDark() ? "light" : "dark";
    setTheme(theme);
    store(THEME, theme);
    say(`${theme} theme`);
  };

  // ---------------------------------------------------------------- times

  const DAY = 86400e3;
  const format = (options) => new Intl.DateTimeFormat(undefined, options);
  const clock = format({ hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const dayAndClock = format({ month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const whole = format({ dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const ago = (milliseconds) => {
    const seconds = Math.round(Math.abs(milliseconds) / 1000);
    if (seconds < 2) return "now";
    const [unit, size] = UNITS.find(([, size]) => seconds >= size);
    const told = `${Math.floor(seconds / size)} ${unit}`;
    return milliseconds < 0 ? `in ${told}` : `${told} ago`;
  };
  const localise = (part) => {
    const now = Date.now();
    for (const element of part.querySelectorAll("time[datetime]")) {
      const moment = new Date(element.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      const utc = `${moment.toISOString().replace("T", " ").replace(/\.\d+Z$/, "")} UTC`;
      const local = Math.abs(now - moment) < DAY / 2 ? clock.format(moment) : dayAndClock.format(moment);
      const relative = element.dataset.form === "ago";
      const text = relative ? ago(now - moment) : element.dataset.form === "whole" ? whole.format(moment) : local;
      if (element.textContent !== text) element.textContent = text;
      element.title = `${relative || text !== whole.format(moment) ? `${whole.format(moment)} ${zone}\n` : ""}${utc}`;
    }
    for (const element of part.querySelectorAll("[data-zone]")) element.textContent = zone;
  };

  // ---------------------------------------------------------------- morphing: the page of now becomes the newer one

  const ONCE = "once";
  const keyOf = (node) => (node.nodeType === 1 ? node.id || node.dataset.key || "" : "");
  // A form that is being filled in stays until it is closed, also if the newer page has it no more.
  const isFilledIn = (element) =>
    element.matches("details.menu[open], form") && element.contains(document.activeElement) && typing(document.activeElement);
  const isKept = (element) =>
    element.hasAttribute("data-keep") || (element.tagName === "DIALOG" && element.open) || isFilledIn(element);

  const morph = (from, to) => {
    if (from.nodeType !== 1) {
      if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
      return;
    }
    if (isKept(from)) return;
    for (const { name, value } of [...to.attributes]) {
      if (name === "open" && from.tagName === "DETAILS") continue;
      if (name === "value" && from.name === ONCE) continue;
      if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    for (const { name } of [...from.attributes]) {
      const own = ["open", "data-sent", "data-choice"].includes(name) || (name === "title" && from.tagName === "TIME") || (name === "disabled" && live.leaving);
      if (!to.hasAttribute(name) && !own) from.removeAttribute(name);
    }
    if (from.tagName === "TEXTAREA" || from.tagName === "SELECT") {
      if (isTouched(from)) return;
    }
    morphChildren(from, to);
  };

  const isTouched = (field) => {
    if (field === document.activeElement) return true;
    if (field.tagName === "SELECT") return [...field.options].some((option) => option.selected !== option.defaultSelected);
    return field.value !== field.defaultValue;
  };

  const matches = (one, other) =>
    one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);

  const morphChildren = (from, to) => {
    const keyed = new Map();
    for (const child of from.children) if (keyOf(child)) keyed.set(keyOf(child), child);
    let here = from.firstChild;
    for (const wanted of [...to.childNodes]) {
      const key = keyOf(wanted);
      let found = null;
      if (key) found = keyed.get(key) && matches(keyed.get(key), wanted) ? keyed.get(key) : null;
      else {
        // What stands between and is no longer there goes: else all that follows would be made anew, and lose what is
        // open or typed in it.
        let ahead = here;
        while (ahead && !keyOf(ahead) && !matches(ahead, wanted) && (wanted.nodeType === 1 || ahead.nodeType !== 1)) ahead = ahead.nextSibling;
        if (ahead && matches(ahead, wanted)) {
          while (here !== ahead) { const next = here.nextSibling; here.remove(); here = next; }
          found = here;
        }
      }
      if (!found) {
        from.insertBefore(wanted, here);
        continue;
      }
      if (found === here) here = here.nextSibling;
      else from.insertBefore(found, here);
      morph(found, wanted);
    }
    while (here) {
      const next = here.nextSibling;
      if (!(here.nodeType === 1 && isKept(here))) here.remove();
      here = next;
    }
  };

  // ---------------------------------------------------------------- live: conditional polling

  // A page that can be seen asks every second, or is told by a stream and asks now and then; a hidden one is silent.
  const QUICK = 1000, SLOW = 10000, LONGEST = 30000;
  const live = { tag: null, timer: 0, failures: 0, busy: false, streams: false, leaving: false };
  const pageIsLive = () => document.body.dataset.live !== "off";

  const showLive = (state, words) => {
    const shown = document.getElementById("live");
    if (!shown) return;
    shown.className = `live ${state}`;
    shown.querySelector("span").textContent = words;
  };

  const pace = () => {
    if (live.failures) return Math.min(QUICK * 2 ** live.failures, LONGEST);
    return live.streams ? SLOW : QUICK;
  };

  const later = () => {
    clearTimeout(live.timer);
    if (pageIsLive() && !document.hidden) live.timer = setTimeout(look, pace());
  };

  // While a question is open the page stays as it is: the form that waits for the answer must be the one that was asked
  // about. So it does while an act is on its way.
  const standsStill = () => live.leaving || document.querySelector("#confirm[open]");

  const look = async () => {
    if (live.busy || document.hidden || !pageIsLive() || standsStill()) return later();
    live.busy = true;
    try {
      const headers = live.tag ? { "If-None-Match": live.tag } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store", credentials: "same-origin", redirect: "error" });
      if (answer.status === 200) {
        const html = await answer.text();
        if (!standsStill()) {
          live.tag = answer.headers.get("ETag");
          update(html);
        }
      } else if (answer.status !== 304) throw new Error(String(answer.status));
      live.failures = 0;
      showLive("is-live", "Live");
    } catch (error) {
      live.failures += 1;
      if (live.failures > 1) showLive("is-lost", error.message === "503" ? "The database is slow or away" : "Not connected");
    }
    live.busy = false;
    later();
  };

  const update = (html) => {
    const next = new DOMParser().parseFromString(html, "text/html");
    localise(next);
    for (const id of ["side", "main"]) {
      const from = document.getElementById(id), to = next.getElementById(id);
      if (!from || !to) continue;
      keepNotices(from, to);
      morph(from, to);
    }
    if (document.title !== next.title) document.title = next.title;
  };

  // A notice is sent once; the next look at the page must not take it away while it is being read.
  const keepNotices = (from, to) => {
    const notice = from.querySelector("#notice");
    if (notice && !to.querySelector("#notice")) to.prepend(notice.cloneNode(true));
  };

  // Where the server offers a stream, it says that something was committed; the page then looks at once, and by itself
  // only now and then. The server ends a stream after some seconds; the browser opens the next one, and says what it
  // was told last, so that it hears nothing while nothing happens.
  const listen = () => {
    const address = document.body.dataset.events;
    if (!address || !window.EventSource || !pageIsLive()) return;
    let source = null;
    const close = () => { if (source) source.close(); source = null; live.streams = false; };
    const open = () => {
      if (source || document.hidden) return;
      source = new EventSource(address);
      source.onopen = () => { live.streams = true; later(); };
      source.addEventListener("changed", () => { live.streams = true; clearTimeout(live.timer); look(); });
      source.onerror = () => { if (source && source.readyState === EventSource.CLOSED) close(); };
    };
    document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
    addEventListener("pagehide", close);
    addEventListener("pageshow", open);
    open();
  };

  // ---------------------------------------------------------------- small help

  let toast = null;
  const say = (words) => {
    if (toast) toast.remove();
    toast = document.createElement("div");
    toast.className = "toast";
    toast.setAttribute("role", "status");
    toast.textContent = words;
    document.body.append(toast);
    const mine = toast;
    setTimeout(() => mine.remove(), 1800);
  };

  const copy = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.classList.add("is-copied");
      setTimeout(() => button.classList.remove("is-copied"), 1200);
      say("Copied");
    } catch { say("This browser does not let pages copy"); }
  };

  // A question before an act that cannot be taken back. Without a dialog the browser's own asks.
  const ask = (form, submitter) => {
    const dialog = document.getElementById("confirm");
    const words = (submitter && submitter.dataset.confirm) || form.dataset.confirm;
    const go = () => {
      form.dataset.confirmed = "yes";
      form.requestSubmit(submitter || undefined);
    };
    if (!dialog || !dialog.showModal) { if (window.confirm(words)) go(); return; }
    dialog.querySelector("p").textContent = words;
    dialog.returnValue = "";
    dialog.onclose = () => { if (dialog.returnValue === "yes") go(); };
    dialog.showModal();
  };

  // An act on all that a filter matches is done in rounds: each says how many are done and whether more are left.
  const doInRounds = async (form) => {
    const bar = form.querySelector("progress"), words = form.querySelector("[data-progress-words]");
    const fields = new URLSearchParams(new FormData(form));
    let done = null;
    form.setAttribute("data-keep", "");
    if (bar) bar.hidden = false;
    for (const button of form.querySelectorAll("button")) button.disabled = true;
    try {
      done = await rounds(form, fields, bar, words);
    } catch {
      if (words) words.textContent = "The connection was lost: what was done is done, and the rest can be asked for again";
    } finally {
      for (const button of form.querySelectorAll("button")) button.disabled = false;
      form.removeAttribute("data-keep");
    }
    if (done !== null) say(`${done.toLocaleString()} done`);
    look();
  };

  const rounds = async (form, fields, bar, words) => {
    let done = 0;
    for (;;) {
      const answer = await fetch(`${form.getAttribute("action")}.json`, { method: "POST", body: fields, credentials: "same-origin" });
      const told = await answer.json().catch(() => ({}));
      if (!answer.ok && answer.status !== 409) { if (words) words.textContent = told.message || "This failed"; break; }
      done += told.count || 0;
      if (words) words.textContent = `${done.toLocaleString()} done`;
      if (bar && form.dataset.total) { bar.max = Number(form.dataset.total); bar.value = done; }
      if (!told.more) { if (words) words.textContent = told.message && !done ? told.message : `${done.toLocaleString()} done`; break; }
      if (told.after) fields.set("after", told.after);
    }
    return done;
  };

  // The job or run of a form gets the id in its field `once`. It is made anew when the form is sent for the first time,
  // so that it says when that was; a form that comes back from the browser's history keeps it, and makes nothing twice.
  const setOnce = (form) => {
    const field = form.elements[ONCE];
    if (!field || form.dataset.sent) return;
    const at = Math.round(parseInt(field.value.replace("-", "").slice(0, 12), 16) + performance.now());
    const digits = [...crypto.getRandomValues(new Uint8Array(10))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    const time = at.toString(16).padStart(12, "0");
    field.value = `${time.slice(0, 8)}-${time.slice(8)}-7${digits.slice(0, 3)}-8${digits.slice(3, 6)}-${digits.slice(6, 18)}`;
    form.dataset.sent = "yes";
  };
  // A second click finds the buttons dead. The browser has read the form when the timer comes.
  const setButtons = (disabled) => {
    for (const button of document.querySelectorAll('main form[method="post"] button:not([type="button"])')) button.disabled = disabled;
  };

  // Addresses without fields that say nothing. The browser has read the form when the timer comes.
  const leaveOutEmpty = (form) => {
    const empty = [...form.elements].filter((field) => field.name && !field.value && !field.disabled);
    for (const field of empty) field.disabled = true;
    setTimeout(() => { for (const field of empty) field.disabled = false; });
  };

  // ---------------------------------------------------------------- events

  document.addEventListener("submit", (event) => {
    const form = event.target, submitter = event.submitter;
    const asks = form.dataset.confirm || (submitter && submitter.dataset.confirm);
    if (asks && form.dataset.confirmed !== "yes") {
      event.preventDefault();
      ask(form, submitter);
      return;
    }
    delete form.dataset.confirmed;
    if (form.hasAttribute("data-rounds")) {
      event.preventDefault();
      doInRounds(form);
      return;
    }
    const method = form.getAttribute("method") || "get";
    if (method === "dialog") return;
    if (method === "get") leaveOutEmpty(form);
    else if (live.leaving) { event.preventDefault(); return; }
    else { setOnce(form); setTimeout(setButtons, 0, true); }
    live.leaving = true;
    setTimeout(stay, LONGEST);
  });
  const stay = () => { live.leaving = false; setButtons(false); };
  addEventListener("pageshow", stay);

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-copy], [data-theme-toggle], [data-help], [data-dismiss]");
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    if (!target) return;
    if (target.dataset.copy !== undefined) copy(target);
    else if (target.hasAttribute("data-theme-toggle")) toggleTheme();
    else if (target.hasAttribute("data-dismiss")) target.closest(".notice").remove();
    else help();
  });

  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.hasAttribute("data-submit")) box.form.requestSubmit();
    if (!box.hasAttribute("data-check-all")) return;
    for (const other of box.closest("table, form").querySelectorAll('input[type="checkbox"]')) other.checked = box.checked;
  });

  const help = () => {
    const dialog = document.getElementById("help");
    if (dialog && dialog.showModal && !dialog.open) dialog.showModal();
  };

  const rowLinks = () => [...document.querySelectorAll("main tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
  const moveInRows = (step) => {
    const links = rowLinks();
    if (!links.length) return;
    const at = links.indexOf(document.activeElement);
    links[Math.min(Math.max(at + step, 0), links.length - 1)].focus();
  };

  let going = 0;
  const typing = (target) => target.closest && target.closest("input, textarea, select, [contenteditable]");
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      for (const menu of document.querySelectorAll("details.menu[open]")) { menu.open = false; menu.querySelector("summary").focus(); }
      if (typing(event.target)) event.target.blur();
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
    if (going && Date.now() - going < 1500) {
      going = 0;
      const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const search = document.getElementById("search");
    if (event.key === "/" && search) { event.preventDefault(); search.focus(); search.select(); }
    else if (event.key === "?") help();
    else if (event.key === "g") going = Date.now();
    else if (event.key === "t") toggleTheme();
    else if (event.key === "j") moveInRows(1);
    else if (event.key === "k") moveInRows(-1);
  });
  const begin = () => {
    localise(document);
    listen();
    for (const wide of document.querySelectorAll(".graph-wrap")) wide.scrollLeft = (wide.scrollWidth - wide.clientWidth) / 2;
    const current = document.querySelector(".side [aria-current]");
    if (current && current.offsetParent) current.closest(".side").scrollLeft = current.offsetLeft - 40;
    const notice = document.getElementById("notice");
    if (notice) notice.focus({ preventScroll: true });
    document.addEventListener("visibilitychange", () => { if (document.hidden) clearTimeout(live.timer); else look(); });
    addEventListener("pageshow", (event) => { if (event.persisted) look(); });
    setInterval(() => { if (!document.hidden) localise(document); }, 10000);
    if (pageIsLive()) { showLive("is-live", "Live"); later(); } else showLive("", "Not live");
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
