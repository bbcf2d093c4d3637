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
    this.buttons = new Map();
    this.list = el("ul", { class: "cards" });
    this.element = el("section", { "aria-labelledby": "what-to-change" }, el("h2", { id: "what-to-change" }, "What to change"), this.list);
    if (D.groups.length === 0) this.list.replaceWith(el("p", {}, "Nothing: no pair and no check asks for a change."));
    this.show(SHOWN_CARDS);
    if (D.left.causes > 0) this.element.append(el("p", { class: "note" }, "The page has no room for " + plural(D.left.causes, "more cause") + ", which fewer nodes have: p2pcheck report prints them."));
  }

  show(most) {
    const shown = D.groups.length > most + 1 ? most : D.groups.length;
    for (let g = this.list.children.length; g < shown; g++) this.list.append(this.card(g));
    if (shown === D.groups.length) return;
    const more = el("button", { type: "button", class: "more", on: { click: () => {
      const first = this.list.children.length;
      more.remove();
      this.show(most + 50);
      this.list.children[first].querySelector("button, h3").focus();
    } } }, "Show more causes (" + (D.groups.length - shown).toLocaleString("en") + " left)");
    this.element.append(more);
  }

  card(g) {
    const [first, ...others] = D.groups[g].map((at) => D.causes[at]);
    const card = el("li", { class: "card r-" + first.result }, el("h3", { tabindex: -1 }, badge(first.result), " ", causeTitle(text(first.what))));
    if (this.nodesOf) {
      const its = this.nodesOf(g);
      card.append(el("p", { class: "on" }, el("strong", {}, plural(its.length, "node") + ": "), names(its, 8)));
    }
    const scope = first.scope.map(text);
    if (scope.length) card.append(el("p", {}, el("strong", {}, first.nodes > 1 ? "There, on the first of them: " : "There: "), el("span", { class: "mono" }, names(scope, 3, first.scopes))));
    if (first.why.length) card.append(el("ul", { class: "why" }, ...first.why.map((w) => el("li", {}, text(w)))));
    card.append(first.remedy >= 0 ? remedyBox(first.remedy) : el("p", { class: "note" }, text(first.what).startsWith("worse than") ? "Choose such a node: the page lists what became worse." : "p2pcheck knows no change for it."));
    if (others.length) {
      const same = [...new Set(others.map((c) => text(c.what).split(":")[0] + " (" + c.result + ")"))];
      card.append(el("p", {}, "The same change also mends: ", names(same, 8), "."));
    }
    const words = this.nodesOf ? "Show only these nodes" : "Show only these pairs";
    const b = el("button", { type: "button", class: "filter", "aria-pressed": "false", "aria-label": words + ": " + short(text(first.what), 80), on: { click: () => this.choose(this.on === g ? -1 : g) } }, words);
    this.buttons.set(g, b);
    card.append(b);
    return card;
  }

  mark(g) {
    this.on = g;
    for (const [at, b] of this.buttons) b.setAttribute("aria-pressed", String(at === g));
  }
}

// causeTitle is a cause as a title.
function causeTitle(what) {
  return what.startsWith("pairs: ") ? "P" + what.slice(1) : what.startsWith("worse") ? "W" + what.slice(1) : what;
}

// causeOptions are the groups as choices of a filter.
function causeOptions() {
  const out = [["-1", "any"]];
  D.groups.slice(0, 500).forEach((g, i) => {
    const c = D.causes[g[0]];
    out.push([String(i), RESULTS[c.result] ? RESULTS[c.result].word + " " + short(causeTitle(text(c.what)), 70) : short(text(c.what), 70)]);
  });
  return out;
}
