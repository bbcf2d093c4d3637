// SPDX-License-Identifier: Apache-2.0
// What to change: causes that one change mends stand together.
"use strict";

const SHOWN_CARDS = 6;

// Cards has a card for each group of causes. Choose is called with the place of a group, or -1 for none. NodesOf
// returns the names of a group's nodes; it is null for one machine.
class Cards {
  constructor(choose, nodesOf) {
    this.choose = choose;
    this.nodesOf = nodesOf;
    this.on = -1;
    this.most = SHOWN_CARDS;
    this.buttons = new Map();
    this.list = el("ul", { class: "cards" });
    this.more = el("button", { type: "button", class: "more", on: { click: () => {
      const first = this.list.children.length;
      this.most += 50;
      this.show(this.most);
      this.list.children[first].querySelector("button, h3").focus();
    } } });
    this.element = el("section", { "aria-labelledby": "what-to-change" }, el("h2", { id: "what-to-change" }, "What to change"), this.list);
    if (D.groups.length === 0) this.list.replaceWith(el("p", {}, "Nothing: no pair and no check asks for a change."));
    this.show(this.most);
    if (D.left.causes > 0) this.element.append(el("p", { class: "note" }, "The page has no room for " + plural(D.left.causes, "more cause") + ", which fewer nodes have: p2pcheck report prints them."));
    addEventListener("beforeprint", () => this.show(Infinity));
    addEventListener("afterprint", () => this.show(this.most));
    matchMedia("print").addEventListener("change", (e) => this.show(e.matches ? Infinity : this.most));
  }

  // show puts the first cards into the document, up to a limit.
  show(most) {
    const shown = D.groups.length > most + 1 ? most : D.groups.length;
    for (let g = this.list.children.length; g < shown; g++) this.list.append(this.card(g));
    while (this.list.children.length > shown) {
      this.list.lastChild.remove();
      this.buttons.delete(this.list.children.length);
    }
    if (shown === D.groups.length) this.more.remove();
    else this.list.after(this.more);
    this.more.textContent = "Show more changes (" + (D.groups.length - shown).toLocaleString("en") + " left)";
  }

  card(g) {
    const all = D.groups[g].map((at) => D.causes[at]);
    const first = all[0];
    const card = el("li", { class: "card r-" + first.result }, el("h3", { tabindex: -1 }, String(g + 1) + " ", badge(first.result), " ", groupTitle(g)));
    if (first.remedy >= 0) {
      const r = D.remedies[first.remedy];
      if (r.place >= 0 || r.command >= 0 || r.weakens >= 0) {
        card.append(el("div", { class: "remedy" },
          r.place < 0 ? null : el("p", {}, "Put this " + text(r.place) + ":"),
          r.command < 0 ? null : el("pre", { tabindex: 0, role: "group", "aria-label": "command" }, text(r.command)),
          r.weakens < 0 ? null : el("p", { class: "weakens" }, el("strong", {}, "This gives up: "), text(r.weakens))));
      }
    }
    let nodes = 0;
    if (this.nodesOf) {
      const its = this.nodesOf(D.groups[g]);
      nodes = its.length;
      card.append(el("p", { class: "on" }, el("strong", {}, plural(its.length, "node") + ": "), names(its, 8)));
    }
    if (first.remedy < 0) card.append(el("p", { class: "note" }, text(first.what).startsWith("worse than") ? "Choose such a node: the page lists what became worse." : "p2pcheck knows no change for it."));
    // The causes that this change mends. Causes that differ in their evidence only stand together.
    const alike = new Map();
    for (const at of D.groups[g]) {
      const key = D.causes[at].result + " " + D.causes[at].what;
      if (alike.has(key)) alike.get(key).push(at);
      else alike.set(key, [at]);
    }
    const list = el("ul", { class: "mends" });
    for (const its of alike.values()) list.append(this.cause(its, nodes));
    card.append(list);
    const words = this.nodesOf ? "Show only these nodes" : "Show only these pairs";
    const b = el("button", { type: "button", class: "filter", "aria-pressed": String(this.on === g), "aria-label": words + ": " + (g + 1) + " " + short(groupTitle(g), 80), on: { click: () => this.choose(this.on === g ? -1 : g) } }, words);
    this.buttons.set(g, b);
    card.append(b);
    return card;
  }

  // cause makes the item of some causes that one change mends: the evidence of the first cause, and how many others
  // there are.
  cause(its, nodes) {
    const c = D.causes[its[0]];
    const item = el("li", { class: "mended" });
    if (c.remedy >= 0) item.append(badge(c.result), " ", el("b", {}, causeTitle(text(c.what)))); // else it is the card's title
    if (this.nodesOf) {
      const on = this.nodesOf(its);
      if (on.length < nodes) item.append(el("span", {}, " on ", names(on, 4)));
    }
    const scope = c.scope.map(text);
    const of = this.nodesOf ? this.nodesOf([its[0]]) : [];
    if (scope.length) item.append(el("p", {}, of.length > 1 || its.length > 1 && of.length ? "There, on " + of[0] + ": " : "There: ", el("span", { class: "mono" }, names(scope, 3, c.scopes))));
    if (c.why.length) item.append(el("ul", { class: "why" }, ...c.why.map((w) => el("li", {}, text(w)))));
    const repeat = [...new Set(its.flatMap((at) => D.causes[at].repeat))].map(text);
    if (repeat.length) item.append(el("p", {}, "These checks say the same of the pairs: ", names(repeat, 8), "."));
    if (its.length > 1) item.append(el("p", { class: "note" }, "and " + plural(its.length - 1, "more finding") + " like it, with other evidence"));
    return item;
  }

  mark(g) {
    this.on = g;
    for (const [at, b] of this.buttons) b.setAttribute("aria-pressed", String(at === g));
  }
}

// causeTitle is a cause as a title. A check's title says what the check expects, and the cause is that it is not so.
function causeTitle(what) {
  const check = /^([A-Z0-9]+(?:-[A-Z0-9]+)+): (.*)$/s.exec(what);
  if (check) return check[1] + ", expected: " + check[2];
  return what.startsWith("pairs: ") ? "P" + what.slice(1) : what.startsWith("worse") ? "W" + what.slice(1) : what;
}

// groupTitle is the change of a group, or its cause if there is no change.
function groupTitle(g) {
  const c = D.causes[D.groups[g][0]];
  if (c.remedy < 0) return causeTitle(text(c.what));
  const change = text(D.remedies[c.remedy].change);
  return change.slice(0, 1).toUpperCase() + change.slice(1);
}

// causeOptions are the groups as choices of a filter, with the numbers of their cards.
function causeOptions() {
  const out = [["-1", "any"]];
  D.groups.slice(0, 500).forEach((g, i) => {
    const c = D.causes[g[0]];
    out.push([String(i), i + 1 + " " + (RESULTS[c.result] ? RESULTS[c.result].word + " " : "") + short(groupTitle(i), 70)]);
  });
  return out;
}
