// SPDX-License-Identifier: Apache-2.0
// The page of a fleet.
"use strict";

class FleetPage {
  constructor() {
    this.filter = { name: "", result: "", outcome: "", cause: -1, drift: "" };
    this.causeRows = D.causes.map(() => []);
    const groupOf = new Map();
    D.groups.forEach((its, g) => its.forEach((c) => groupOf.set(c, g)));
    this.groupsOf = D.rows.map((r) => {
      const its = new Set();
      for (const c of r.causes) {
        this.causeRows[c].push(r);
        if (groupOf.has(c)) its.add(groupOf.get(c));
      }
      return its;
    });
    this.cards = new Cards((g) => this.chooseCause(g), (causes) => [...new Set(causes.flatMap((c) => this.causeRows[c]))].flatMap((r) => r.nodes.map(text)));
    this.grid = new Grid((item, cell, follow) => this.choose(item, cell, follow));
    this.count = el("p", { class: "count", id: "count" });
    this.panel = el("section", { class: "panel", "aria-label": "The chosen node" });
    this.element = el("div", { class: "fleet" }, this.header(), this.cards.element,
      el("section", { "aria-labelledby": "nodes" }, el("h2", { id: "nodes" }, "Nodes by pairs, the worst first"), this.toolbar(), legend(),
        el("p", { id: "grid-help", class: "note" }, "Arrow keys move between nodes and pairs, Enter shows what is chosen below."), this.count, this.grid.element), this.panel);
    this.apply();
  }

  header() {
    const nodes = { fail: 0, unknown: 0, warn: 0, pass: 0 };
    const pairs = { direct: 0, all: 0 };
    const since = { nodes: 0, worse: 0, unknown: 0, better: 0 };
    let all = 0;
    for (const r of D.rows) {
      const n = r.nodes.length;
      all += n;
      nodes[r.result in nodes ? r.result : "unknown"] += n;
      pairs.direct += n * r.summary.direct;
      pairs.all += n * total(r.summary);
      if (r.since < 0) continue;
      since.nodes += n;
      const d = D.drifts[r.since];
      since.worse += d.worse ? n : 0;
      since.unknown += !d.worse && d.unknown ? n : 0;
      since.better += !d.worse && !d.unknown && d.better ? n : 0;
    }
    const tiles = el("ul", { class: "tiles" });
    for (const [r, n] of Object.entries(nodes)) {
      if (n > 0 || r === "fail" || r === "pass") tiles.append(el("li", { class: "tile r-" + r }, el("b", {}, n.toLocaleString("en")), " " + (n === 1 ? "node " + RESULTS[r].node : "nodes " + RESULTS[r].nodes)));
    }
    tiles.append(el("li", { class: "tile" }, el("b", {}, pairs.all === 0 ? "0" : (Math.floor((1000 * pairs.direct) / pairs.all) / 10) + " %"), " of " + plural(pairs.all, "pair") + " direct"));
    if (since.nodes > 0) tiles.append(el("li", { class: "tile" + (since.worse ? " r-fail" : "") }, el("b", {}, since.worse.toLocaleString("en")), " worse than in the earlier run" + (since.unknown ? ", " + since.unknown + " not known any more" : "") + (since.better ? ", " + since.better + " better" : "")));
    const out = el("header", {}, el("h1", {}, "GPUs and NICs of " + plural(all, "node")), tiles);
    if (D.like >= 0) out.append(el("p", { class: "note" }, "Each node is compared with " + text(D.like) + (D.kindsOfNodes === 1 ? ", and none differs from it." : ". The details of a node say in what it differs.")));
    if (D.gone.length) out.append(el("p", { class: "gone" }, el("strong", {}, plural(D.gone.length, "node") + " of the earlier run without a run now: "), names(D.gone.map(text), 16)));
    return out;
  }

  toolbar() {
    const set = (name) => (value) => {
      this.filter[name] = value;
      this.apply();
    };
    const there = (values) => ORDER.filter((o) => values.has(o)).map((o) => [o, outcome(o).word]);
    const outcomes = new Set();
    for (const r of D.rows) {
      for (const o of ORDER) if (r.summary[o] > 0) outcomes.add(o);
    }
    const bar = el("div", { class: "bar", role: "search", "aria-label": "Filters" },
      search("f-name", "Node", set("name")),
      select("f-result", "Result", [["", "any"], ...["fail", "unknown", "warn", "pass"].map((r) => [r, RESULTS[r].word])], set("result")),
      select("f-outcome", "A pair is", [["", "any"], ...there(outcomes)], set("outcome")),
      select("f-cause", "Cause", causeOptions(), (v) => this.chooseCause(Number(v))));
    if (D.rows.some((r) => r.since >= 0)) {
      bar.append(select("f-drift", "Since the earlier run", [["", "any"], ["worse", "worse"], ["unknown", "not known any more"], ["changed", "changed"], ["better", "better"], ["none", "no change"]], set("drift")));
    }
    bar.append(el("button", { type: "button", on: { click: () => this.reset() } }, "Show all"));
    return bar;
  }

  reset() {
    this.filter = { name: "", result: "", outcome: "", cause: -1, drift: "" };
    for (const e of this.element.querySelectorAll(".bar input, .bar select")) e.value = e.id === "f-cause" ? "-1" : "";
    this.cards.mark(-1);
    this.apply();
  }

  chooseCause(g) {
    this.filter.cause = g;
    this.cards.mark(g);
    const s = this.element.querySelector("#f-cause");
    s.value = String(g);
    this.apply();
  }

  keeps(r, at) {
    const f = this.filter;
    if (f.result && r.result !== f.result) return false;
    if (f.outcome && !(r.summary[f.outcome] > 0)) return false;
    if (f.cause >= 0 && !this.groupsOf[at].has(f.cause)) return false;
    if (f.drift) {
      if (r.since < 0) return false;
      const d = D.drifts[r.since];
      if (f.drift === "none" ? d.worse + d.unknown + d.changed + d.better > 0 : !(d[f.drift] > 0)) return false;
    }
    return true;
  }

  apply() {
    const rows = [];
    let n = 0;
    let all = 0;
    D.rows.forEach((r, at) => {
      all += r.nodes.length;
      if (!this.keeps(r, at)) return;
      let its = r.nodes.map(text);
      if (this.filter.name) its = its.filter((s) => s.toLowerCase().includes(this.filter.name));
      if (its.length === 0) return;
      n += its.length;
      rows.push({ row: r, names: its });
    });
    this.grid.set(rows);
    const words = n === all ? plural(all, "node") + " in " + plural(rows.length, "row") : n.toLocaleString("en") + " of " + plural(all, "node") + " in " + plural(rows.length, "row");
    this.count.textContent = words;
    say(words);
    this.follow();
  }

  // follow keeps the details on a node that the filters leave: the chosen one, or else the first.
  follow() {
    const items = this.grid.items;
    const at = items.findIndex((x) => x.row && x.row === this.grid.selected);
    if (items.length === 0) {
      this.grid.selected = null;
      clear(this.panel, el("p", { class: "note" }, "The filters leave no node, and there are no details."));
    } else if (at < 0) {
      this.grid.select(1, -1, false);
    } else if (items[at].names.join() !== this.shown) {
      this.grid.select(at, -1, false);
    }
  }

  choose(item, cell, follow) {
    const r = item.row;
    this.shown = item.names.join();
    const head = el("h2", { tabindex: -1 }, badge(r.result), " ", names(item.names, 4));
    const facts = el("dl", { class: "facts" });
    const fact = (name, value) => facts.append(el("div", {}, el("dt", {}, name), el("dd", {}, value)));
    clear(this.panel, head);
    if (r.error >= 0) {
      this.panel.append(el("p", {}, "The file of the node cannot be read: " + text(r.error)), el("p", {}, "Nothing is known of it. Run p2pcheck --json on the node again."));
      if (follow) head.focus();
      return;
    }
    fact("kernel", text(r.kernel) || "unknown");
    fact("GPUs and NICs", r.gpus + " and " + r.nics);
    fact("pairs", summaryText(r.summary));
    if (r.failing.length) fact("failing checks", names(r.failing.map(text), 8, r.fails));
    if (r.unknown.length) fact("unknown checks", names(r.unknown.map(text), 8, r.unknowns));
    this.panel.append(facts);
    if (r.since >= 0) {
      this.panel.append(el("h3", {}, "Since the earlier run" + (r.sinceFrom >= 0 ? " (" + text(r.sinceFrom) + ")" : "") + ": " + driftWords(r.since)), driftList(r.since));
    } else if (r.sinceError >= 0) {
      this.panel.append(el("p", { class: "note" }, "The earlier run cannot be read: " + text(r.sinceError)));
    }
    if (r.causes.length) {
      const list = el("ul", { class: "why" });
      const alike = new Map();
      for (const c of r.causes) {
        const key = D.causes[c].result + " " + text(D.causes[c].what);
        alike.set(key, [c, (alike.get(key) || [c, 0])[1] + 1]);
      }
      const each = [...alike.values()];
      for (const [c, n] of each.slice(0, 12)) list.append(el("li", {}, badge(D.causes[c].result), " ", causeTitle(text(D.causes[c].what)), n > 1 ? " (" + n + " reasons)" : ""));
      if (each.length > 12) list.append(el("li", {}, "and " + plural(each.length - 12, "more cause")));
      this.panel.append(el("h3", {}, "Why"), list);
    }
    if (r.kind >= 0 && D.kinds[r.kind].cells.length > 0) {
      const detail = el("div");
      const matrix = new Matrix(r.kind, (place, byUser) => {
        const { gpu, nic } = matrix.devices(place);
        clear(detail, pairView(matrix.kind.cells[place], text(gpu.name), text(nic.name), null));
        if (byUser) say("links of " + text(gpu.name) + " to " + text(nic.name));
      });
      this.panel.append(el("div", { class: "two fit" }, matrix.element, detail));
      matrix.select(cell >= 0 ? cell : matrix.worst(), false);
    }
    if (r.differs >= 0 && D.drifts[r.differs].items.length > 0) {
      this.panel.append(el("details", {}, el("summary", {}, "Differs from " + text(D.like) + ": " + driftWords(r.differs)), driftList(r.differs)));
    }
    if (follow) {
      head.focus();
      this.panel.scrollIntoView({ block: "start" });
    }
  }
}
