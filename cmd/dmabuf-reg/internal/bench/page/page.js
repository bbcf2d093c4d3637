// SPDX-License-Identifier: Apache-2.0
(function () {
	"use strict";
	const curves = JSON.parse(document.getElementById("data").textContent).curves || [];
	const kinds = [...new Set(curves.map((c) => c.kind))];
	const dashes = { direct: [], moved: [10, 3, 2, 3], staged: [8, 4], host: [2, 3] };
	const shown = { tail: false };
	kinds.forEach((k) => { shown[k] = true; });
	const plots = [];

	const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
	const three = (v) => String(Number(v.toPrecision(3)));
	function scaled(v, steps) {
		let unit = steps[0];
		for (const s of steps) if (v >= s[0]) unit = s;
		return three(v / unit[0]) + " " + unit[1];
	}
	const size = (v) => scaled(v, [[1, "B"], [1 << 10, "KiB"], [1 << 20, "MiB"], [1 << 30, "GiB"]]);
	const rate = (v) => scaled(v, [[1e3, "kB/s"], [1e6, "MB/s"], [1e9, "GB/s"], [1e12, "TB/s"]]);
	const time = (v) => scaled(v, [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]]);

	// room is the range of a logarithmic axis, with some room at both ends.
	const room = (low, high, factor) => [low / factor, high * factor];

	function draw(figure) {
		const op = figure.dataset.op, of = figure.dataset.of;
		const format = of === "bandwidth" ? rate : time;
		const mine = curves.filter((c) => c.op === op);
		const sizes = [...new Set(mine.flatMap((c) => c.points.map((p) => p.size)))].sort((a, b) => a - b);
		const data = [sizes], series = [{}], bands = [], lines = [];
		let low = Infinity, high = 0;
		for (const c of mine) {
			const at = new Map(c.points.map((p) => [p.size, p[of]]));
			const column = (i) => sizes.map((s) => {
				const v = at.has(s) ? at.get(s)[i] : 0;
				if (!(v > 0)) return null; // a logarithmic axis has no 0
				low = Math.min(low, v);
				high = Math.max(high, v);
				return v;
			});
			const first = data.length;
			const stroke = () => colour(c.kind);
			data.push(column(0), column(2), column(1));
			series.push(
				{ stroke: "transparent", width: 0, points: { show: false } },
				{ stroke: "transparent", width: 0, points: { show: false } },
				{ stroke, width: 2, dash: dashes[c.kind] || [], points: { show: true, size: 6, stroke, fill: stroke } });
			bands.push({ series: [first + 1, first], fill: () => colour(c.kind) + "33" });
			const line = { kind: c.kind, all: [first, first + 1, first + 2], low: first, high: first + 1, middle: first + 2, tail: 0 };
			if (of === "latency") {
				line.tail = data.length;
				data.push(column(3));
				series.push({ stroke, width: 1, dash: [1, 3], points: { show: false }, show: shown.tail });
			}
			lines.push(line);
		}
		if (!(high > 0)) {
			figure.querySelector(".readout").textContent = "Nothing was measured.";
			return;
		}
		const box = figure.querySelector(".plot"), readout = figure.querySelector(".readout");
		const axis = { filter: (u, list) => list, stroke: () => colour("quiet"), grid: { stroke: () => colour("grid"), width: 1 }, ticks: { stroke: () => colour("grid"), width: 1 } };
		const plot = new uPlot({
			width: box.clientWidth, height: box.clientHeight, legend: { show: false }, series, bands,
			scales: {
				x: { time: false, distr: 3, log: 2, range: () => room(sizes[0], sizes[sizes.length - 1], 1.3) },
				y: { distr: 3, log: 10, range: () => extent(lines, data) },
			},
			axes: [
				Object.assign({ values: (u, list) => list.map(size), splits: (u) => thinned(u, sizes) }, axis),
				Object.assign({ size: 76, values: (u, list) => list.map(format), splits: (u) => ticks(u.scales.y.min, u.scales.y.max) }, axis),
			],
			cursor: { sync: { key: "size" }, y: false, drag: { x: false, y: false }, points: { show: false } },
			hooks: { setCursor: [(u) => { readout.textContent = read(u, lines, format); }] },
		}, data, box);
		plots.push({ plot, box, lines });
	}

	// thinned are the measured sizes that have room for their names.
	function thinned(u, sizes) {
		const kept = [];
		let last = -Infinity;
		for (const s of sizes) {
			const at = u.valToPos(s, "x");
			if (at - last >= 56) {
				kept.push(s);
				last = at;
			}
		}
		return kept;
	}

	// ticks are powers of ten, and their double and fivefold if these powers are few.
	function ticks(low, high) {
		const list = [];
		const steps = Math.log10(high / low) < 3 ? [1, 2, 5] : [1];
		for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high); p++) {
			for (const s of steps) {
				const v = s * 10 ** p;
				if (v >= low && v <= high) list.push(v);
			}
		}
		return list;
	}

	// extent is the range from the lowest to the highest value of the curves that are shown.
	function extent(lines, data) {
		let low = Infinity, high = 0;
		for (const line of lines) {
			if (!shown[line.kind]) continue;
			for (const i of line.tail && shown.tail ? [...line.all, line.tail] : line.all) {
				for (const v of data[i]) {
					if (v === null) continue;
					low = Math.min(low, v);
					high = Math.max(high, v);
				}
			}
		}
		return high > 0 ? room(low, high, 1.4) : [1, 10];
	}

	// read is the text with the values of the curves at the cursor.
	function read(u, lines, format) {
		const i = u.cursor.idx;
		if (i === null || i === undefined) return "";
		const parts = [];
		for (const line of lines) {
			const v = u.data[line.middle][i];
			if (v === null || !shown[line.kind]) continue;
			let text = line.kind + " " + format(v) + " (" + format(u.data[line.low][i]) + " to " + format(u.data[line.high][i]) + ")";
			if (line.tail && shown.tail && u.data[line.tail][i] !== null) text += ", 99 % " + format(u.data[line.tail][i]);
			parts.push(text);
		}
		return size(u.data[0][i]) + ": " + parts.join("; ");
	}

	function refresh() {
		for (const p of plots) {
			p.plot.batch(() => {
				for (const line of p.lines) {
					for (const i of line.all) p.plot.setSeries(i, { show: shown[line.kind] });
					if (line.tail) p.plot.setSeries(line.tail, { show: shown[line.kind] && shown.tail });
				}
			});
		}
	}

	function box(name, text, dash) {
		const label = document.createElement("label"), input = document.createElement("input");
		input.type = "checkbox";
		input.checked = shown[name];
		input.name = name;
		input.addEventListener("change", () => { shown[name] = input.checked; refresh(); });
		label.append(input);
		if (dash) {
			const ns = "http://www.w3.org/2000/svg";
			const svg = document.createElementNS(ns, "svg"), line = document.createElementNS(ns, "line");
			svg.setAttribute("viewBox", "0 0 40 12");
			svg.setAttribute("aria-hidden", "true");
			for (const [k, v] of Object.entries({ x1: 0, y1: 6, x2: 40, y2: 6, "stroke-width": 3, stroke: "var(--" + (name === "tail" ? "quiet" : name) + ")", "stroke-dasharray": dash.join(" ") })) line.setAttribute(k, v);
			svg.append(line);
			label.append(svg);
		}
		label.append(text);
		document.getElementById("kinds").append(label);
	}

	if (curves.length > 0) {
		for (const k of kinds) box(k, k, dashes[k] || []);
		box("tail", "99 % of latencies", [1, 3]);
		document.querySelectorAll("figure[data-op]").forEach(draw);
		const fit = new ResizeObserver(() => plots.forEach((p) => p.plot.setSize({ width: p.box.clientWidth, height: p.box.clientHeight })));
		plots.forEach((p) => fit.observe(p.box));
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach((p) => p.plot.redraw(false, true)));
	}
	document.documentElement.dataset.drawn = String(plots.length);
}());
