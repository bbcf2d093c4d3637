// SPDX-License-Identifier: Apache-2.0
// The heat map: a row for alike nodes, a cell for each pair. Only rows that are visible are in the document.
"use strict";

const CELL = 15; // pixels, with the space between two cells
const LINE = 19;
const GAP = 8; // pixels, between two GPUs
const FIXED = 510; // pixels, the width of a row without its cells
const NARROW = 640; // below this width the cells of a row stand below its name
const HEAD = 27;
const MANY_PAIRS = 256; // a node with more pairs has a cell for each GPU
const MANY_GPUS = 256; // and with more GPUs it has no cells
const PRINTED = 1000; // the most rows that are printed

// strips are the cells of a kind of node, in groups: {place, outcome, letter, label}.
const strips = new Map();
function strip(kind) {
  if (strips.has(kind)) return strips.get(kind);
  const k = D.kinds[kind];
  const l = D.layouts[k.layout];
  let out = [];
  const pairs = k.cells.length;
  if (pairs > 0 && pairs <= MANY_PAIRS) {
    let next = 0;
    for (const g of l.groups) {
      out.push(g.nics.map((n) => {
        const place = next++;
        const d = D.details[k.cells[place]];
        const o = outcome(d.outcome);
        return { place, outcome: outcomeClass(d.outcome), letter: d.slow ? SLOW.letter : o.letter, label: text(l.gpus[g.gpu].name) + " to " + text(l.nics[n].name) + ": " + o.word + (d.letters < 0 ? "" : " " + text(d.letters)) + (d.slow ? ", " + SLOW.label : "") };
      }));
    }
  } else if (pairs > 0 && l.groups.length <= MANY_GPUS) {
    let next = 0;
    const cells = l.groups.map((g) => {
      const its = g.nics.map((n, i) => D.details[k.cells[next + i]]);
      const at = worstAt(its);
      const place = next + at;
      next += g.nics.length;
      const w = its[at];
      return { place, outcome: outcomeClass(w.outcome), letter: w.slow ? SLOW.letter : outcome(w.outcome).letter, label: text(l.gpus[g.gpu].name) + ": " + its.filter((d) => d.outcome === "direct").length + " of " + its.length + " direct, the worst " + outcome(w.outcome).word + (w.slow ? ", " + SLOW.label : "") };
    });
    out = [cells];
  }
  strips.set(kind, out);
  return out;
}

class Grid {
  // Choose is called with a row, the place of a cell or -1, and whether the keyboard's focus should follow.
  constructor(choose) {
    this.choose = choose;
    this.items = [];
    this.drawn = new Map();
    this.focus = { at: -1, cell: -1 };
    this.selected = null;
    this.body = el("div", { class: "rows", role: "presentation" });
    this.element = el("div", { class: "grid", role: "grid", "aria-label": "Nodes by pairs, the worst first", "aria-describedby": "grid-help" }, this.body);
    this.element.addEventListener("scroll", () => this.schedule(), { passive: true });
    this.element.addEventListener("keydown", (e) => this.key(e));
    new ResizeObserver(() => this.measure()).observe(this.element);
    addEventListener("beforeprint", () => this.print(true));
    addEventListener("afterprint", () => this.print(false));
    matchMedia("print").addEventListener("change", (e) => this.print(e.matches));
  }

  // set shows these rows: {row, names}, in their order. A head comes before each row with another layout than the one
  // above it.
  set(rows) {
    this.items = [];
    let head = null;
    for (const r of rows) {
      const layout = r.row.kind < 0 ? -1 : D.kinds[r.row.kind].layout;
      if (!head || head.layout !== layout) {
        head = { layout, nodes: 0, kind: r.row.kind };
        this.items.push(head);
      }
      head.nodes += r.names.length;
      this.items.push(r);
    }
    for (const e of this.drawn.values()) e.remove();
    this.drawn.clear();
    this.focus = { at: this.items.length > 1 ? 1 : -1, cell: -1 };
    this.element.scrollTop = 0;
    this.element.setAttribute("aria-rowcount", String(this.items.length));
    this.measure();
  }

  // lines is how many lines the cells of a kind need.
  lines(kind) {
    if (kind < 0) return 1;
    const groups = strip(kind);
    const room = Math.max(CELL * 8, this.element.clientWidth - (this.narrow ? 24 : FIXED));
    let lines = 1;
    let used = 0;
    for (const g of groups) {
      const width = g.length * CELL + GAP;
      if (used > 0 && used + width > room) {
        lines++;
        used = 0;
      }
      lines += Math.max(0, Math.ceil((g.length * CELL) / room) - 1);
      used += Math.min(width, room);
    }
    return lines;
  }

  measure() {
    if (this.printing) return;
    this.narrow = this.element.clientWidth < NARROW;
    this.element.classList.toggle("narrow", this.narrow);
    this.tops = [];
    let top = 0;
    const known = new Map();
    for (const item of this.items) {
      this.tops.push(top);
      const kind = item.row ? item.row.kind : -1;
      if (!known.has(kind)) known.set(kind, (this.narrow ? 42 : 10) + this.lines(kind) * LINE);
      top += item.row ? Math.max(30, known.get(kind)) : HEAD;
    }
    this.tops.push(top);
    this.body.style.height = top + "px";
    for (const [at, e] of this.drawn) this.place(at, e);
    this.draw();
  }

  place(at, e) {
    e.style.top = this.tops[at] + "px";
    e.style.height = this.tops[at + 1] - this.tops[at] + "px";
  }

  schedule() {
    if (!this.frame) this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  // at is the item at a height.
  at(y) {
    let low = 0;
    let high = this.items.length - 1;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (this.tops[mid] <= y) low = mid;
      else high = mid - 1;
    }
    return low;
  }

  draw() {
    if (this.printing) return;
    const wanted = new Set();
    if (this.items.length > 0) {
      const from = this.element.scrollTop - 200;
      const to = this.element.scrollTop + this.element.clientHeight + 200;
      for (let i = this.at(Math.max(0, from)); i < this.items.length && this.tops[i] < to; i++) wanted.add(i);
      if (this.focus.at >= 0) wanted.add(this.focus.at); // the keyboard's focus stays in the document
    }
    this.keep(wanted);
  }

  keep(wanted) {
    for (const [at, e] of this.drawn) {
      if (!wanted.has(at)) {
        e.remove();
        this.drawn.delete(at);
      }
    }
    const sorted = [...wanted].sort((a, b) => a - b);
    let after = null;
    for (const at of sorted) {
      let e = this.drawn.get(at);
      if (!e) {
        const item = this.items[at];
        e = item.row ? this.row(at, item) : this.head(at, item);
        this.place(at, e);
        this.drawn.set(at, e);
        if (after) after.after(e);
        else this.body.prepend(e);
      }
      after = e;
    }
  }

  head(at, item) {
    const words = item.kind < 0 ? "their files cannot be read" : D.kinds[item.kind].cut ? "their pairs are left out: the page is full" : null;
    const layout = item.kind < 0 ? null : D.layouts[item.layout];
    let sentence = words || "no pair that counts";
    const groups = item.kind < 0 ? [] : strip(item.kind);
    if (!words && layout.groups.length > 0) {
      const nics = layout.nics.map((n) => text(n.name));
      const list = nics.length > 4 ? nics[0] + ", " + nics[1] + ", … " + nics[nics.length - 1] : nics.join(", ");
      sentence = plural(layout.gpus.length, "GPU") + ", " + plural(layout.nics.length, "NIC") + ". ";
      if (groups.length > 1 || (groups.length === 1 && layout.gpus.length === 1)) sentence += "A block is a GPU (" + text(layout.gpus[0].name) + (layout.gpus.length > 1 ? " … " + text(layout.gpus[layout.gpus.length - 1].name) : "") + "), a cell in it a NIC: " + list;
      else if (groups.length === 1) sentence += "A cell is a GPU, with the worst of its pairs";
      else sentence += "These are too many for cells";
    }
    return el("div", { class: "grow head", role: "row", "aria-rowindex": at + 1 },
      el("span", { role: "columnheader", "aria-colspan": "5", class: "clip", title: sentence }, el("b", {}, plural(item.nodes, "node") + " "), sentence));
  }

  row(at, item) {
    const r = item.row;
    const more = item.names.length - 1;
    const selected = this.selected === r;
    const e = el("div", { class: "grow" + (selected ? " selected" : ""), role: "row", "aria-rowindex": at + 1, "aria-selected": selected ? "true" : "false", tabindex: this.focus.at === at && this.focus.cell < 0 ? 0 : -1, "data-at": at },
      el("span", { class: "g-result", role: "gridcell" }, badge(r.result)),
      el("span", { class: "g-name", role: "rowheader", title: item.names[0] }, el("span", { class: "mono clip" }, item.names[0]), more > 0 ? el("span", { class: "more-nodes" }, "+ " + more.toLocaleString("en") + " alike") : ""));
    const cells = el("span", { class: "g-cells", role: "presentation" });
    const one = (c) => el("span", { class: "cell o-" + c.outcome, role: "gridcell", "aria-label": c.label, title: c.label, "data-place": c.place, tabindex: this.focus.at === at && this.focus.cell === c.place ? 0 : -1 }, c.letter);
    if (r.kind < 0) cells.append(el("span", { role: "gridcell", class: "clip" }, text(r.error)));
    else if (strip(r.kind).length === 0) cells.append(el("span", { role: "gridcell" }, summaryText(r.summary)));
    else cells.append(...strip(r.kind).map((g) => el("span", { class: "block", role: "presentation" }, ...g.map(one))));
    e.append(cells, el("span", { class: "g-direct", role: "gridcell" }, r.kind < 0 ? "?" : total(r.summary) === 0 ? "no pair" : r.summary.direct + "/" + total(r.summary) + " direct"));
    const drift = [];
    if (r.since >= 0) {
      const d = D.drifts[r.since];
      if (d.worse) drift.push(el("span", { class: "badge d-worse" }, "▼ " + d.worse + " worse"));
      else if (d.unknown) drift.push(el("span", { class: "badge d-unknown" }, "? " + d.unknown));
      else if (d.better) drift.push(el("span", { class: "badge d-better" }, "▲ " + d.better + " better"));
      else if (d.changed) drift.push(el("span", { class: "badge d-changed" }, d.changed + " changed"));
      else drift.push("no change");
    } else if (r.sinceError >= 0) {
      drift.push("earlier run unread");
    }
    e.append(el("span", { class: "g-drift", role: "gridcell" }, ...drift));
    e.addEventListener("click", (event) => {
      const cell = event.target.closest("[data-place]");
      this.move(at, cell ? Number(cell.dataset.place) : -1, false);
      this.select(at, cell ? Number(cell.dataset.place) : -1, false);
    });
    return e;
  }

  select(at, cell, follow) {
    this.selected = this.items[at].row;
    for (const [i, e] of this.drawn) {
      if (!this.items[i].row) continue;
      const on = this.items[i].row === this.selected;
      e.classList.toggle("selected", on);
      e.setAttribute("aria-selected", String(on));
    }
    this.choose(this.items[at], cell, follow);
  }

  // move puts the keyboard's focus on a row, or on a cell of it.
  move(at, cell, show) {
    const set = (value) => {
      const e = this.drawn.get(this.focus.at);
      if (!e) return null;
      const target = this.focus.cell < 0 ? e : e.querySelector("[data-place=\"" + this.focus.cell + "\"]");
      if (target) target.tabIndex = value;
      return target;
    };
    set(-1);
    this.focus = { at, cell };
    if (show) {
      const view = this.element;
      if (this.tops[at] < view.scrollTop + HEAD) view.scrollTop = Math.max(0, this.tops[at] - HEAD);
      else if (this.tops[at + 1] > view.scrollTop + view.clientHeight) view.scrollTop = this.tops[at + 1] - view.clientHeight;
    }
    this.draw();
    const target = set(0);
    if (show && target) target.focus({ preventScroll: true });
  }

  key(e) {
    const { at, cell } = this.focus;
    if (at < 0 || e.ctrlKey || e.altKey || e.metaKey) return;
    const rows = (from, by) => {
      let i = from + by;
      while (i >= 0 && i < this.items.length && !this.items[i].row) i += Math.sign(by);
      return i >= 0 && i < this.items.length ? i : from;
    };
    const places = this.items[at].row.kind < 0 ? [] : strip(this.items[at].row.kind).flat().map((c) => c.place);
    const keep = (to) => {
      const its = this.items[to].row.kind < 0 ? [] : strip(this.items[to].row.kind).flat().map((c) => c.place);
      return its.includes(cell) ? cell : -1;
    };
    const i = places.indexOf(cell);
    const page = Math.max(1, Math.floor(this.element.clientHeight / 40));
    const last = this.items.length - 1;
    const jump = (to) => {
      const near = Math.min(last, Math.max(1, to));
      return this.items[near].row ? near : rows(near, 1);
    };
    const to = {
      ArrowDown: () => rows(at, 1), ArrowUp: () => rows(at, -1), PageDown: () => jump(at + page), PageUp: () => jump(at - page), Home: () => jump(1), End: () => jump(last),
    }[e.key];
    if (to) {
      const there = to();
      this.move(there, keep(there), true);
    } else if (e.key === "ArrowRight" && places.length > 0) {
      this.move(at, places[Math.min(places.length - 1, i + 1)], true);
    } else if (e.key === "ArrowLeft") {
      this.move(at, i <= 0 ? -1 : places[i - 1], true);
    } else if (e.key === "Enter" || e.key === " ") {
      this.select(at, cell, true);
    } else {
      return;
    }
    e.preventDefault();
  }

  // print puts all rows into the document, up to a limit.
  print(on) {
    if (on === Boolean(this.printing)) return;
    this.printing = on;
    this.element.classList.toggle("printing", on);
    if (this.note) this.note.remove();
    if (!on) {
      this.measure();
      return;
    }
    this.body.style.height = "auto";
    this.keep(new Set(this.items.slice(0, PRINTED).keys()));
    if (this.items.length > PRINTED) {
      this.note = el("p", {}, "and " + (this.items.length - PRINTED).toLocaleString("en") + " more rows, which are not printed: filter them");
      this.element.after(this.note);
    }
  }
}
