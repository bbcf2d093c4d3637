// SPDX-License-Identifier: Apache-2.0
// Functions of all parts. Each text of a machine becomes a text node: nothing here parses markup.
"use strict";

const D = JSON.parse(document.getElementById("data").textContent);

D.rows.forEach((r) => Object.assign(r, D.sorts[r.sort]));

// text is the text at a place; "" for none.
function text(at) {
  return at < 0 ? "" : D.texts[at];
}

// el makes an element. Its attributes are names of this script with values of any kind; children are elements
// or texts.
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "on") {
      for (const [event, run] of Object.entries(value)) e.addEventListener(event, run);
    } else {
      e.setAttribute(name, value === true ? "" : String(value));
    }
  }
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
  return e;
}

function clear(e, ...children) {
  e.replaceChildren(...children.filter((c) => c !== null && c !== undefined && c !== ""));
}

function plural(n, noun) {
  return n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");
}

// Outcomes of pairs, the worst first. Each has a letter, so that no colour decides.
const OUTCOMES = {
  lost: { letter: "L", word: "LOST", means: "the registration succeeds, and bytes get lost" },
  broken: { letter: "B", word: "BROKEN", means: "the NIC does not reach the GPU's memory" },
  refused: { letter: "R", word: "REFUSED", means: "the registration fails" },
  staged: { letter: "S", word: "STAGED", means: "the NIC gets system memory" },
  unknown: { letter: "?", word: "UNKNOWN", means: "not known; unknown is never a yes" },
  direct: { letter: "•", word: "direct", means: "every link is known to hold" },
};
const ORDER = Object.keys(OUTCOMES);

// SLOW marks a pair that is direct and slower than it could be, as the text of p2pcheck does.
const SLOW = { letter: "^", label: "slower than it could be", word: "direct", means: "and slower than it could be: the pair's details say why" };

// Results of nodes and checks, the worst first, with what one node and several nodes do that have the result.
const RESULTS = {
  fail: { word: "FAIL", node: "fails", nodes: "fail" },
  unknown: { word: "UNKNOWN", node: "is unknown", nodes: "are unknown" },
  warn: { word: "WARN", node: "warns", nodes: "warn" },
  pass: { word: "PASS", node: "passes", nodes: "pass" },
  skip: { word: "SKIP", node: "is skipped", nodes: "are skipped" },
};

function outcome(name) {
  return Object.hasOwn(OUTCOMES, name) ? OUTCOMES[name] : OUTCOMES.unknown;
}

function outcomeClass(name) {
  return Object.hasOwn(OUTCOMES, name) ? name : "unknown";
}

function badge(result) {
  const known = Object.hasOwn(RESULTS, result) ? result : "unknown";
  return el("span", { class: "badge r-" + known }, RESULTS[known].word);
}

function outcomeBadge(name, words) {
  return el("span", { class: "badge o-" + outcomeClass(name) }, words || outcome(name).word);
}

// worst is the worst of some outcomes.
function worst(names) {
  return ORDER.find((o) => names.includes(o)) || "unknown";
}

// worstAt is the place of the worst of some pairs: among those that are direct, of the first that is slow.
function worstAt(details) {
  const w = worst(details.map((d) => d.outcome));
  const slow = w === "direct" ? details.findIndex((d) => d.slow) : -1;
  return slow >= 0 ? slow : Math.max(0, details.findIndex((d) => d.outcome === w));
}

function total(s) {
  return s.direct + s.staged + s.refused + s.lost + s.broken + s.unknown;
}

// summaryText counts pairs by outcome, those that are not direct by name.
function summaryText(s) {
  const parts = [s.direct + " of " + total(s) + " direct"];
  for (const o of ORDER) {
    if (o !== "direct" && s[o] > 0) parts.push(s[o] + " " + o);
  }
  return total(s) === 0 ? "no pair" : parts.join(", ");
}

// names writes the first names of a list, and a button for the others.
function names(all, most, count) {
  const n = count || all.length;
  const out = el("span", { class: "names" });
  const write = (shown) => {
    clear(out, shown.join(", "));
    if (shown.length < all.length) {
      out.append(" ", el("button", { type: "button", class: "more", on: { click: () => write(all) } }, "and " + (n - shown.length).toLocaleString("en") + " more"));
    } else if (n > all.length) {
      out.append(" and " + (n - all.length).toLocaleString("en") + " more, which the page has no room for");
    }
  };
  write(all.length > most + 1 ? all.slice(0, most) : all);
  return out;
}

// remedyBox says what to change.
function remedyBox(at) {
  if (at < 0) return null;
  const r = D.remedies[at];
  return el("div", { class: "remedy" },
    el("p", {}, el("strong", {}, "Change: "), text(r.change), r.place < 0 ? "" : "; put this " + text(r.place) + ":"),
    r.command < 0 ? null : el("pre", { tabindex: 0, role: "group", "aria-label": "command" }, text(r.command)),
    r.weakens < 0 ? null : el("p", { class: "weakens" }, el("strong", {}, "This gives up: "), text(r.weakens)));
}

// say tells a screen reader what has changed.
function say(words) {
  const live = document.getElementById("live");
  if (live) live.textContent = words;
}

function select(id, label, options, change) {
  const s = el("select", { id, on: { change: () => change(s.value) } });
  for (const [value, words] of options) s.append(el("option", { value }, words));
  return el("span", { class: "field" }, el("label", { for: id }, label), s);
}

function search(id, label, input) {
  const box = el("input", { id, type: "search", autocomplete: "off", spellcheck: "false", on: { input: () => input(box.value.trim().toLowerCase()) } });
  return el("span", { class: "field" }, el("label", { for: id }, label), box);
}

// short is a text of at most n letters.
function short(s, n) {
  const letters = Array.from(s);
  return letters.length > n ? letters.slice(0, n - 1).join("") + "…" : s;
}

function legend() {
  const list = el("ul", { class: "legend", "aria-label": "Legend" });
  for (const o of ORDER) {
    list.append(el("li", {}, el("span", { class: "cell o-" + o, "aria-hidden": "true" }, outcome(o).letter), el("b", {}, outcome(o).word), " " + outcome(o).means));
  }
  list.append(el("li", {}, el("span", { class: "cell o-direct", "aria-hidden": "true" }, SLOW.letter), el("b", {}, SLOW.word), " " + SLOW.means));
  return list;
}

// driftList has the differences of a node from another run.
function driftList(at) {
  const d = D.drifts[at];
  const list = el("ul", { class: "drift" });
  const there = (v) => (v < 0 ? "not there" : text(v));
  const alike = new Map(); // changes that are equal for several devices or checks
  for (const x of d.items.map((i) => D.changes[i])) {
    const key = JSON.stringify([x.what, x.before, x.after, x.change, x.asksMore, text(x.what) === "check" ? text(x.name).split(" ")[0] : ""]);
    if (alike.has(key)) alike.get(key).push(x);
    else alike.set(key, [x]);
  }
  const items = [...alike.values()].map((its) => el("li", {}, el("span", { class: "badge d-" + its[0].change }, its[0].change.toUpperCase()), " ",
    el("b", {}, its.length > 1 ? plural(its.length, text(its[0].what)) : text(its[0].what)), " ", names(its.map((x) => text(x.name)), 3), ": was ", el("b", {}, there(its[0].before)), ", is ", el("b", {}, there(its[0].after)),
    its[0].asksMore ? " (a difference of versions)" : ""));
  if (d.more > 0) items.push(el("li", {}, "and " + plural(d.more, "more difference") + ", which the page has no room for"));
  const shown = items.length > 11 ? 10 : items.length;
  list.append(...items.slice(0, shown));
  if (shown < items.length) {
    const more = el("button", { type: "button", class: "more", on: { click: () => more.parentElement.replaceWith(...items.slice(shown)) } }, "and " + (items.length - shown) + " more");
    list.append(el("li", {}, more));
  }
  return list;
}

function driftWords(at) {
  const d = D.drifts[at];
  const parts = [];
  for (const c of ["worse", "unknown", "changed", "better"]) {
    if (d[c] > 0) parts.push(d[c] + " " + c);
  }
  return parts.length ? parts.join(", ") : "nothing";
}
