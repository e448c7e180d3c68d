"use strict";
const root = document.documentElement;
const theme = document.getElementById("theme");
const dark = () => (root.style.colorScheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const labelTheme = () => { theme.textContent = dark() ? "Light" : "Dark"; };
theme.hidden = false;
theme.addEventListener("click", () => { root.style.colorScheme = dark() ? "light" : "dark"; labelTheme(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", labelTheme);
labelTheme();

const browser = document.getElementById("browser");
if (browser) {
  const list = document.getElementById("cases");
  const cases = [...list.children];
  const data = new Map(cases.map((c, place) => [c, {
    place,
    findings: JSON.parse(c.dataset.findings),
    errors: JSON.parse(c.dataset.errors),
    text: c.textContent.toLowerCase(),
  }]));
  const search = document.getElementById("search");
  const order = document.getElementById("order");
  const status = document.getElementById("count");
  const chips = [...browser.querySelectorAll("[data-finding]")];
  let finding = "";

  const shown = () => [...list.children].filter((c) => !c.hidden);
  // A case without a count comes last, whatever the order.
  const rank = (c) => {
    const [kind, system] = order.value.split(" ");
    const { errors, place } = data.get(c);
    const known = errors.filter((e) => e !== null);
    if (kind === "run") return place;
    if (kind === "spread") return known.length > 1 ? Math.min(...known) - Math.max(...known) : Infinity;
    const own = errors[Number(system)];
    return own === null ? Infinity : kind === "worst" ? -own : own;
  };
  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const c of cases) {
      const { findings, text } = data.get(c);
      c.hidden = (finding !== "" && !findings.includes(finding)) || !words.every((w) => text.includes(w));
    }
    const ranks = new Map(cases.map((c) => [c, rank(c)]));
    list.append(...[...cases].sort((a, b) => {
      const [x, y] = [ranks.get(a), ranks.get(b)];
      return x === y ? data.get(a).place - data.get(b).place : x < y ? -1 : 1;
    }));
    for (const chip of chips) chip.setAttribute("aria-pressed", String(chip.dataset.finding === finding));
    status.textContent = shown().length + " of " + cases.length + " cases";
  };
  const go = (step) => {
    const visible = shown();
    if (!visible.length) return;
    const here = visible.indexOf(document.activeElement.closest("article"));
    const next = here < 0 ? (step > 0 ? 0 : visible.length - 1) : Math.min(Math.max(here + step, 0), visible.length - 1);
    visible[next].focus();
    visible[next].scrollIntoView({ block: "start" });
  };
  for (const chip of chips) chip.addEventListener("click", () => {
    finding = finding === chip.dataset.finding ? "" : chip.dataset.finding;
    apply();
  });
  search.addEventListener("input", apply);
  order.addEventListener("change", apply);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === search) {
      if (event.key === "Escape") { search.value = ""; apply(); search.blur(); }
      if (event.key === "Enter") go(1);
      return;
    }
    if (event.target.closest("select, .scroll")) return;
    const step = { j: 1, ArrowRight: 1, k: -1, ArrowLeft: -1 }[event.key];
    if (step) { event.preventDefault(); go(step); }
    if (event.key === "/") { event.preventDefault(); search.focus(); search.select(); }
  });
  browser.hidden = false;
  apply();
}
