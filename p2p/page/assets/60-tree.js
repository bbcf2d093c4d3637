// SPDX-License-Identifier: Apache-2.0
// The PCI tree of one machine, and the way between two of its functions.
"use strict";

const STEP = 22; // pixels, the indent of a level

// ROLES are short words for functions.
const ROLES = { GPU: "GPU", NIC: "NIC", NVMe: "NVMe", DMA: "DMA", bridge: "port", "guest NIC": "guest NIC", other: "PF" };

class Tree {
  constructor(choose) {
    this.machine = D.machine;
    this.rows = []; // of functions
    this.buses = new Map();
    this.guides = []; // by function: elements by level
    this.at = new Map(); // by address
    this.choose = choose;
    const list = el("ul", { class: "tree" });
    this.children = this.machine.tree.map(() => []);
    this.roots = new Map();
    this.machine.tree.forEach((f, i) => {
      this.at.set(f.pci, i);
      const up = f.path.length ? f.path[f.path.length - 1] : -1;
      if (up >= 0) this.children[up].push(i);
      else if (this.roots.has(f.bus)) this.roots.get(f.bus).push(i);
      else this.roots.set(f.bus, [i]);
    });
    this.machine.tree.forEach((f, i) => {
      if (!this.buses.has(f.bus)) {
        const head = el("li", { class: "bus" }, el("b", { class: "mono" }, text(f.bus)), " host bridge");
        this.buses.set(f.bus, head);
        list.append(head);
      }
      list.append(this.row(f, i));
    });
    if (D.left.tree > 0) list.append(el("li", {}, "and " + plural(D.left.tree, "more function") + ", which the page has no room for: p2pcheck topo prints them"));
    this.element = el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "PCI tree" }, list);
  }

  // line are the functions from the bus to this one.
  line(i) {
    return [...this.machine.tree[i].path.filter((p) => p >= 0), i];
  }

  siblings(i) {
    const path = this.machine.tree[i].path;
    const up = path.length ? path[path.length - 1] : -1;
    return up >= 0 ? this.children[up] : this.roots.get(this.machine.tree[i].bus);
  }

  row(f, i) {
    const line = this.line(i);
    const depth = line.length - 1;
    const e = el("li", { class: "fn role-" + (f.role === "GPU" || f.role === "NIC" ? f.role : "other") });
    e.style.paddingLeft = (depth + 1) * STEP + 8 + "px";
    const mine = [];
    line.forEach((a, level) => {
      const its = this.siblings(a);
      const last = its[its.length - 1] === a;
      if (level < depth && last) {
        mine.push(null);
        return;
      }
      const g = el("span", { class: "guide" + (level === depth ? (last ? " end" : " turn") : ""), "aria-hidden": "true" });
      g.style.left = level * STEP + 10 + "px";
      e.append(g);
      mine.push(g);
    });
    this.guides.push(mine);
    const shape = el("span", { class: "shape", "aria-hidden": "true" }, f.role === "GPU" ? "■" : f.role === "NIC" ? "◆" : f.role === "bridge" ? "·" : "○");
    const name = el("span", { class: "what" }, el("b", { class: "mono" }, text(f.pci)), " ", text(f.title), f.name < 0 ? "" : el("small", {}, " " + text(f.name)));
    e.append(el("span", { class: "hop", "aria-hidden": "true" }), shape, el("span", { class: "visually-hidden" }, "level " + (depth + 1) + ", " + (ROLES[f.role] || "function") + ": "), name);
    const facts = el("span", { class: f.role === "bridge" ? "factlist inline" : "factlist" });
    for (const fact of f.facts) {
      const words = text(fact);
      const bad = (f.redirects && words.startsWith("ACS ")) || (f.slow && words === text(f.facts.find((x) => text(x).includes(" GT/s ")) ?? -1));
      if (f.role === "bridge" && words === "ACS does not redirect") continue; // so it is with most ports
      facts.append(el("span", { class: bad ? "fact bad" : "fact" }, bad ? "! " + words : words));
    }
    e.append(facts);
    this.rows.push(e);
    return e;
  }

  // way are the functions from a GPU to a NIC, in order. A bus is {bus}, a function {at}.
  way(gpu, nic) {
    const from = this.at.get(gpu);
    const to = this.at.get(nic);
    if (from === undefined || to === undefined) return null;
    const up = this.line(from).reverse();
    const down = this.line(to).reverse();
    const common = up.find((a) => down.includes(a));
    const out = [];
    if (common !== undefined) {
      for (const a of up.slice(0, up.indexOf(common))) out.push({ at: a });
      out.push({ at: common });
      for (const a of down.slice(0, down.indexOf(common)).reverse()) out.push({ at: a });
      return out;
    }
    for (const a of up) out.push({ at: a });
    out.push({ bus: this.machine.tree[from].bus });
    if (this.machine.tree[from].bus !== this.machine.tree[to].bus) out.push({ bus: this.machine.tree[to].bus });
    for (const a of down.reverse()) out.push({ at: a });
    return out;
  }

  // draw marks the way in the tree.
  draw(way) {
    for (const e of [...this.rows, ...this.buses.values()]) e.classList.remove("on");
    this.rows.forEach((e) => { e.querySelector(".hop").textContent = ""; });
    for (const its of this.guides) its.forEach((g) => g && g.classList.remove("on", "half"));
    if (!way) return;
    way.forEach((hop, n) => {
      if (hop.bus !== undefined) {
        this.buses.get(hop.bus).classList.add("on");
        return;
      }
      const e = this.rows[hop.at];
      e.classList.add("on");
      e.querySelector(".hop").textContent = String(n + 1);
    });
    // Each step between a function and what is above it is a line down the rows in between.
    const ends = way.filter((h) => h.at !== undefined).map((h) => h.at);
    const through = way.some((h) => h.bus !== undefined);
    const top = through ? -1 : Math.min(...ends.map((a) => this.line(a).length));
    for (const a of ends) {
      const level = this.line(a).length - 1;
      if (!through && this.line(a).length === top) continue; // the bridge that both are below
      const mine = this.guides[a][level];
      if (mine) mine.classList.add("on");
      const path = this.machine.tree[a].path.filter((p) => p >= 0);
      const first = path.length ? path[path.length - 1] + 1 : 0;
      for (let i = first; i < a; i++) {
        if (this.machine.tree[i].bus !== this.machine.tree[a].bus) continue;
        const g = this.guides[i][level];
        if (g) g.classList.add("on");
      }
    }
  }

  // list is the way as a list, function by function.
  list(way, d, speed) {
    if (!way) return el("p", { class: "note" }, "The way is not known: one of the two is on no PCI bus, or was not read.");
    const redirects = new Set(d.redirects);
    const list = el("ol", { class: "way" });
    let turned = false;
    way.forEach((hop, n) => {
      if (hop.bus !== undefined) {
        turned = true;
        list.append(el("li", { class: "root" }, el("span", { class: "dir", "aria-hidden": "true" }, "↷"), el("span", { class: "mono" }, text(hop.bus)), " host bridge: through the root complex"));
        return;
      }
      const f = this.machine.tree[hop.at];
      const next = way[n + 1];
      const depth = (h) => (h && h.at !== undefined ? this.line(h.at).length : 0);
      const top = next && n > 0 && depth(next) > depth(hop) && !turned;
      const e = el("li", {}, el("span", { class: "dir", "aria-hidden": "true" }, n === 0 ? "↑" : top ? "↷" : turned ? "↓" : "↑"), el("span", { class: "mono" }, text(f.pci)), " " + text(f.title));
      if (top) turned = true;
      if (n === 0 || n === way.length - 1) e.classList.add("end");
      if (f.link >= 0) e.append(el("span", { class: f.slow || (speed && speed.slowest === f.pci) ? "fact bad" : "fact" }, (f.slow || (speed && speed.slowest === f.pci) ? "! slow link: " : "link: ") + text(f.link)));
      if (redirects.has(f.pci)) {
        e.classList.add("breaks");
        e.append(el("span", { class: "fact bad" }, "✕ ACS sends what comes here up to the root"));
      } else if (f.redirects) {
        e.append(el("span", { class: "fact" }, "ACS redirects, which does not decide about this pair"));
      } else if (f.acsUnknown) {
        e.append(el("span", { class: "fact bad" }, "? ACS unknown"));
      }
      list.append(e);
    });
    return el("div", {}, list, speed && speed.text >= 0 ? el("p", { class: "note" }, "The slowest link carries " + text(speed.text) + ".") : "");
  }
}
