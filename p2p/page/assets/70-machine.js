// SPDX-License-Identifier: Apache-2.0
// The page of one machine.
"use strict";

class MachinePage {
  constructor() {
    const m = D.machine;
    this.m = m;
    this.filter = { device: "", outcome: "", cause: -1, result: "" };
    this.cards = new Cards((g) => this.chooseCause(g), null);
    this.element = el("div", { class: "machine" }, this.header());
    const wide = el("div", { class: "two" });
    this.detail = el("div", { class: "detail", role: "region", tabindex: 0, "aria-label": "The chosen pair" });
    this.tree = new Tree();
    const has = D.kinds[m.kind].cells.length > 0;
    const left = el("div", {});
    if (has) {
      this.matrix = new Matrix(m.kind, (place, byUser) => this.choose(place, byUser));
      left.append(el("h2", {}, "Pairs"), this.toolbar(), legend(), this.matrix.element);
    } else {
      left.append(el("h2", {}, "Pairs"), el("p", {}, "The machine has no pair of a GPU with memory of its own and an RDMA device."));
    }
    if (D.left.pairs > 0) left.append(el("p", { class: "note" }, "The page has no room for " + plural(D.left.pairs, "more pair") + ", of GPUs at the end of the list: --gpu chooses GPUs."));
    left.append(el("h2", {}, "PCI tree"), m.tree.length ? this.tree.element : el("p", {}, "No PCI function was read."));
    wide.append(left, this.detail);
    this.element.append(this.cards.element, wide, this.checks());
    if (m.since >= 0) {
      const drift = el("section", {}, el("h2", {}, "Since " + text(m.baseline) + ": " + driftWords(m.since)), driftList(m.since));
      this.cards.element.after(drift);
    }
    if (has) this.matrix.select(this.matrix.worst(), false);
  }

  header() {
    const facts = el("dl", { class: "facts" });
    for (const f of this.m.facts) facts.append(el("div", {}, el("dt", {}, f.name), el("dd", {}, text(f.value) || "unknown")));
    const s = this.m.summary;
    const tiles = el("ul", { class: "tiles" }, el("li", { class: "tile r-" + this.m.result }, el("b", {}, RESULTS[this.m.result].word), " ", text(this.m.headline)));
    for (const o of ORDER) if (s[o] > 0) tiles.append(el("li", { class: "tile" }, el("b", {}, String(s[o])), " ", o));
    const out = el("header", {}, el("h1", {}, "GPUs and NICs of " + (this.m.name < 0 ? "one machine" : text(this.m.name))), tiles, facts);
    if (this.m.unread.length) out.append(el("p", { class: "note" }, "Not all could be read: " + this.m.unread.map(text).join("; ")));
    return out;
  }

  toolbar() {
    const set = (name) => (value) => {
      this.filter[name] = value;
      this.apply();
    };
    const there = new Set(this.matrixKind().cells.map((c) => D.details[c].outcome));
    return el("div", { class: "bar", role: "search", "aria-label": "Filters of pairs" },
      search("f-device", "Device", set("device")),
      select("f-outcome", "Verdict", [["", "any"], ...ORDER.filter((o) => there.has(o)).map((o) => [o, outcome(o).word])], set("outcome")),
      select("f-cause", "Cause", causeOptions(), (v) => this.chooseCause(Number(v))),
      this.pairCount = el("span", { class: "count", id: "count" }));
  }

  matrixKind() {
    return D.kinds[this.m.kind];
  }

  chooseCause(g) {
    this.filter.cause = g;
    this.cards.mark(g);
    const s = this.element.querySelector("#f-cause");
    if (s) s.value = String(g);
    this.apply();
  }

  apply() {
    if (this.matrix) {
      const f = this.filter;
      let scope = f.cause < 0 ? null : D.groups[f.cause].flatMap((c) => D.causes[c].scope.map(text));
      if (scope && scope.some((name) => name.includes(" -> "))) scope = scope.filter((name) => name.includes(" -> ")); // pairs say more than devices
      if (scope) scope = new Set(scope);
      const left = [];
      this.matrix.dim((place) => {
        const { gpu, nic } = this.matrix.devices(place);
        const d = D.details[this.matrix.kind.cells[place]];
        const g = text(gpu.name);
        const c = text(nic.name);
        const keep = (!f.outcome || d.outcome === f.outcome) && (!f.device || (g + " " + c + " " + text(nic.pci)).toLowerCase().includes(f.device)) &&
          (!scope || scope.has(g + " -> " + c) || scope.has(g) || scope.has(c));
        if (keep) left.push(place);
        return keep;
      });
      const n = left.length;
      const words = n === this.matrix.buttons.length ? plural(n, "pair") : n + " of " + plural(this.matrix.buttons.length, "pair");
      this.pairCount.textContent = words;
      say(words);
      // The details are those of a pair that the filters leave.
      if (n === 0) {
        this.matrix.select(-1, false);
        this.tree.draw(null);
        clear(this.detail, el("p", { class: "note" }, "The filters leave no pair, and there are no details."));
      } else if (!left.includes(this.matrix.at)) {
        const names = left.map((place) => D.details[this.matrix.kind.cells[place]].outcome);
        this.matrix.select(left[names.indexOf(worst(names))], false);
      }
    }
    this.applyChecks();
  }

  choose(place, byUser) {
    const { gpu, nic } = this.matrix.devices(place);
    const at = this.matrix.kind.cells[place];
    const way = this.tree.way(gpu.pci, nic.pci);
    this.tree.draw(way);
    clear(this.detail, pairView(at, text(gpu.name), text(nic.name), this.tree.list(way, D.details[at], this.m.ways[place])));
    if (byUser) say(text(gpu.name) + " to " + text(nic.name) + ": " + outcome(D.details[at].outcome).word);
  }

  checks() {
    const tally = {};
    for (const c of this.m.checks) tally[c.result] = (tally[c.result] || 0) + 1;
    const options = Object.keys(RESULTS).filter((r) => tally[r]).map((r) => [r, RESULTS[r].word + " (" + tally[r] + ")"]);
    this.list = el("ul", { class: "checks" });
    this.checkText = "";
    const first = tally.fail || tally.unknown || tally.warn ? "bad" : "";
    const shown = select("f-check", "Result", [["bad", "not passed"], ["", "all"], ...options], (v) => {
      this.filter.result = v;
      this.applyChecks();
    });
    this.filter.result = first;
    shown.querySelector("select").value = first;
    this.checkCount = el("p", { class: "count" });
    const section = el("section", { "aria-labelledby": "checks" }, el("h2", { id: "checks" }, "Checks"),
      el("div", { class: "bar", role: "search", "aria-label": "Filters of checks" }, shown, search("f-text", "Check or device", (v) => {
        this.checkText = v;
        this.applyChecks();
      })), this.checkCount, this.list);
    // Findings of one check with the same result and the same remedy stand together.
    const alike = new Map();
    for (const c of this.m.checks) {
      const key = JSON.stringify([c.id, c.result, c.expected, c.remedy]);
      if (alike.has(key)) alike.get(key).push(c);
      else alike.set(key, [c]);
    }
    this.items = [...alike.values()].map((its) => ({ c: its[0], its, e: null, words: its.map((c) => text(c.id) + " " + text(c.title) + " " + c.scope.map(text).join(" ")).join(" ").toLowerCase() }));
    const rank = Object.keys(RESULTS);
    this.items.sort((a, b) => rank.indexOf(a.c.result) - rank.indexOf(b.c.result));
    if (D.left.checks > 0) section.append(el("p", { class: "note" }, "The page has no room for " + plural(D.left.checks, "more finding") + "."));
    this.applyChecks();
    return section;
  }

  applyChecks() {
    const r = this.filter.result;
    const keep = this.items.filter((x) => (r === "" || (r === "bad" ? ["fail", "unknown", "warn"].includes(x.c.result) : x.c.result === r)) && (!this.checkText || x.words.includes(this.checkText)));
    const shown = keep.slice(0, 300);
    clear(this.list, ...shown.map((x) => x.e || (x.e = this.check(x.its))));
    this.checkCount.textContent = plural(keep.reduce((n, x) => n + x.its.length, 0), "finding") + (keep.length > shown.length ? ", of which the first " + shown.length + " are shown" : "");
  }

  check(its) {
    const c = its[0];
    const scope = [...new Set(its.flatMap((x) => x.scope.map(text)))];
    const scopes = Math.max(scope.length, its.length === 1 ? c.scopes : 0);
    const body = el("div", {});
    for (const x of its.slice(0, 100)) {
      if (x.scope.length) body.append(el("p", { class: "mono" }, names(x.scope.map(text), 8, x.scopes)));
      if (x.read >= 0) body.append(el("p", {}, el("strong", {}, "Read: "), text(x.read)));
      if (x.where.length) body.append(el("ul", { class: "evidence" }, ...x.where.map((w) => el("li", { class: "mono" }, text(w)))));
    }
    if (its.length > 100) body.append(el("p", {}, "and " + (its.length - 100) + " more"));
    if (c.expected >= 0) body.append(el("p", {}, el("strong", {}, "Expected: "), text(c.expected)));
    if (c.remedy >= 0) body.append(remedyBox(c.remedy));
    if (c.ref >= 0) body.append(el("p", { class: "note" }, "Source: " + text(c.ref)));
    return el("li", {}, el("details", {}, el("summary", {}, badge(c.result), " ", el("b", {}, text(c.id)), (["pass", "skip"].includes(c.result) ? " " : ", expected: ") + text(c.title), scope.length ? el("span", { class: "note" }, " " + short(scope[0], 50) + (scopes > 1 ? " and " + (scopes - 1) + " more" : "")) : ""), body));
  }
}
