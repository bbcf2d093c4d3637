// SPDX-License-Identifier: Apache-2.0
// One pair: its verdict, its chain, and the way through the PCI tree.
"use strict";

const STATES = { holds: "holds", costs: "costs speed", unknown: "unknown", breaks: "BREAKS", "not asked": "not asked" };

function stateClass(state) {
  return "s-" + (Object.hasOwn(STATES, state) ? state.replace(" ", "-") : "unknown");
}

function stateWord(state) {
  return Object.hasOwn(STATES, state) ? STATES[state] : "unknown";
}

// pairView makes the details of a pair. The way is an element, or null.
function pairView(at, gpu, nic, way) {
  const d = D.details[at];
  const head = d.head < 0 ? outcome(d.outcome).word : text(d.head);
  const out = el("article", { class: "pair" },
    el("h3", { tabindex: -1 }, el("span", { class: "mono" }, gpu), " to ", el("span", { class: "mono" }, nic), " ", outcomeBadge(d.outcome, head), d.letters < 0 ? "" : " " + text(d.letters)));
  if (d.cut) {
    out.append(el("p", { class: "note" }, "The page has no room for the links of this pair." + (d.decides < 0 ? "" : " The link \"" + text(d.decides) + "\" decides.") + " On the node, p2pcheck why GPU NIC prints them."));
    return out;
  }
  if (d.conclusion >= 0) out.append(el("p", {}, text(d.conclusion)));
  if (d.outcome !== "direct" || d.slow) {
    if (d.why.length) out.append(el("ul", { class: "why" }, ...d.why.map((w) => el("li", {}, text(w)))));
    if (d.remedy >= 0) out.append(remedyBox(d.remedy));
  }
  if (d.proof >= 0) out.append(el("p", {}, el("strong", {}, "Proof: "), text(d.proof)));
  if (d.links.length) out.append(el("h4", {}, "The chain, link by link"), chainSteps(d));
  if (way) out.append(el("h4", {}, "The way through the PCI tree"), way);
  if (d.links.length) {
    if (way) out.append(el("h4", {}, "What each link rests on"));
    out.append(chainList(d));
  }
  for (const n of d.notes) out.append(el("p", { class: "note" }, text(n)));
  return out;
}

// chainSteps draws the links in a line.
function chainSteps(d) {
  const line = el("ol", { class: "steps", "aria-hidden": "true" });
  for (const at of d.links) {
    const l = D.links[at];
    const decides = d.decides >= 0 && l.link === d.decides;
    line.append(el("li", { class: stateClass(text(l.state)) + (decides ? " decides" : "") }, el("b", {}, text(l.link)), el("span", {}, stateWord(text(l.state)))));
  }
  return line;
}

function chainList(d) {
  const list = el("ol", { class: "chain" });
  for (const at of d.links) {
    const l = D.links[at];
    const decides = d.decides >= 0 && l.link === d.decides;
    const claim = D.claims.find((c) => c.link === text(l.link));
    const item = el("li", { class: stateClass(text(l.state)) + (decides ? " decides" : "") },
      el("p", { class: "claim" }, el("span", { class: "state" }, stateWord(text(l.state))), " ", el("b", {}, text(l.link)), claim ? ": " + claim.claim : "", decides ? el("strong", { class: "mark" }, " decides") : ""));
    for (const w of l.why) item.append(el("p", {}, text(w)));
    if (l.evidence.length) {
      const read = el("ul", { class: "evidence" });
      for (const [file, value] of l.evidence) {
        read.append(el("li", {}, el("span", { class: "mono" }, text(file)), value < 0 ? "" : ": ", el("span", { class: "mono" }, text(value))));
      }
      item.append(el("details", { open: decides }, el("summary", {}, "read: " + plural(l.evidence.length, "fact")), read));
    }
    if (l.remedy >= 0 && l.remedy !== d.remedy) item.append(remedyBox(l.remedy));
    list.append(item);
  }
  return list;
}

// Matrix has the pairs of one kind of node, GPUs by NICs. Choose is called with the place of a cell.
class Matrix {
  constructor(kind, choose) {
    this.kind = D.kinds[kind];
    this.layout = D.layouts[this.kind.layout];
    this.buttons = [];
    this.at = -1;
    this.choose = choose;
    const words = this.layout.nics.length <= 5;
    const head = el("tr", {}, el("th", { scope: "col" }, "GPU"));
    for (const n of this.layout.nics) head.append(el("th", { scope: "col", class: words ? "mono" : "mono tall" }, el("span", {}, text(n.name))));
    const body = el("tbody");
    this.grid = [];
    let next = 0;
    for (const g of this.layout.groups) {
      const gpu = this.layout.gpus[g.gpu];
      const row = el("tr", {}, el("th", { scope: "row", class: "mono" }, text(gpu.name), gpu.driver < 0 ? "" : el("small", {}, " " + text(gpu.driver))));
      const line = new Array(this.layout.nics.length).fill(-1);
      const cells = new Map();
      for (const n of g.nics) {
        const place = next++;
        line[n] = place;
        cells.set(n, this.button(place, gpu, this.layout.nics[n], words));
      }
      for (let n = 0; n < this.layout.nics.length; n++) {
        row.append(el("td", {}, cells.get(n) || el("span", { class: "nopair" }, "-")));
      }
      this.grid.push(line);
      body.append(row);
    }
    this.element = el("div", { class: "pairs" }, el("p", { class: "note" }, "Each GPU with each NIC. Choose a pair to see its links."),
      el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "GPUs by NICs" }, el("table", { class: words ? "matrix words" : "matrix" }, el("thead", {}, head), body)));
    this.element.addEventListener("keydown", (e) => this.key(e));
  }

  button(place, gpu, nic, words) {
    const d = D.details[this.kind.cells[place]];
    const o = outcome(d.outcome);
    const mark = d.slow ? SLOW.letter : "";
    const label = text(gpu.name) + " to " + text(nic.name) + ": " + o.word + (d.letters < 0 ? "" : " " + text(d.letters)) + (d.slow ? ", " + SLOW.label : "");
    const b = el("button", { type: "button", class: "cell o-" + outcomeClass(d.outcome), "aria-label": label, "aria-pressed": "false", title: label, tabindex: place === 0 ? 0 : -1, on: { click: () => this.select(place, true) } },
      words ? (d.outcome === "direct" ? o.word : o.letter === "?" ? "?" : o.word) + mark + (d.letters < 0 ? "" : " " + text(d.letters)) : d.slow ? SLOW.letter : o.letter);
    this.buttons[place] = b;
    return b;
  }

  // worst is the place of the worst pair.
  worst() {
    return worstAt(this.kind.cells.map((c) => D.details[c]));
  }

  // select chooses a pair; -1 chooses none.
  select(place, byUser) {
    if (this.at >= 0) this.buttons[this.at].setAttribute("aria-pressed", "false");
    this.at = place;
    if (place < 0) return; // none
    for (const b of this.buttons) b.tabIndex = -1;
    this.buttons[place].setAttribute("aria-pressed", "true");
    this.buttons[place].tabIndex = 0;
    this.choose(place, byUser);
  }

  // devices are the names of a cell's devices, and the devices themselves.
  devices(place) {
    for (let g = 0; g < this.grid.length; g++) {
      const n = this.grid[g].indexOf(place);
      if (n >= 0) return { gpu: this.layout.gpus[this.layout.groups[g].gpu], nic: this.layout.nics[n] };
    }
    return null;
  }

  key(e) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
    const from = this.buttons.indexOf(document.activeElement);
    if (!step || from < 0) return;
    e.preventDefault();
    let g = this.grid.findIndex((line) => line.includes(from));
    let n = this.grid[g].indexOf(from);
    for (g += step[0], n += step[1]; g >= 0 && n >= 0 && g < this.grid.length && n < this.grid[g].length; g += step[0], n += step[1]) {
      const to = this.grid[g][n];
      if (to < 0) continue;
      this.buttons[from].tabIndex = -1;
      this.buttons[to].tabIndex = 0;
      this.buttons[to].focus();
      return;
    }
  }

  // dim makes pairs pale that a filter leaves out.
  dim(keep) {
    this.buttons.forEach((b, place) => b.classList.toggle("dim", !keep(place)));
  }
}
