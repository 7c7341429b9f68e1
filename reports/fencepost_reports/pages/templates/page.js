"use strict";
// Moves what the page holds already: which part of the timeline is shown, whose states, which verdicts.
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // ------------------------------------------------------------------------------ dark or light
  document.querySelector(".theme").addEventListener("click", () => {
    const chosen = root.dataset.theme;
    const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // ---------------------------------------------------------------------------------- timelines
  const KEEP = 8; // how many events one hover tells of
  const REACH = 6; // pixels

  class Timeline {
    constructor(section) {
      this.section = section;
      this.svg = section.querySelector("svg.timeline");
      this.frame = section.querySelector(".frame");
      this.tip = section.querySelector(".tip");
      this.range = section.querySelector(".range");
      const { length, gutter, right, margin, top, height } = this.svg.dataset;
      this.length = +length;
      this.gutter = +gutter;
      this.right = +right;
      this.margin = +margin;
      this.top = +top;
      this.height = +height;
      this.from = 0;
      this.to = this.length;
      this.chosen = null;
      this.queued = false;
      this.collect();
      this.listen();
      new ResizeObserver(() => this.resize()).observe(this.frame);
    }

    collect() {
      const placed = (e) => ({ e, t0: +e.dataset.t0, t1: +e.dataset.t1 });
      this.spans = all("rect[data-t0]", this.svg).map(placed);
      this.fits = all("text.fit", this.svg).map((e) => ({ ...placed(e), need: +e.dataset.need }));
      this.beside = all("text.beside", this.svg).map(placed);
      this.bars = all(".bar", this.svg);
      this.axis = this.svg.querySelector(".axis");
      this.plot = this.svg.querySelector(".plot");
      this.titled = all(".fault, .span", this.svg).map((e) => {
        const rect = e.querySelector("rect");
        const y = +rect.getAttribute("y");
        return { e, text: take(e), t0: +rect.dataset.t0, t1: +rect.dataset.t1, y, h: +rect.getAttribute("height") };
      });
      this.marks = all(".mark", this.svg).map((e) => {
        const lane = e.closest("[data-y]");
        return { e, t: +e.dataset.t, y: +e.getAttribute("y"), lane, text: take(e) };
      });
      this.marks.sort((a, b) => a.t - b.t);
      // One title would cover another: the tip tells of all that are near.
      function take(e) {
        const title = e.querySelector(":scope > title");
        const text = title ? title.textContent : "";
        if (title) title.remove();
        if (e.tagName === "use") e.setAttribute("aria-label", text);
        return text;
      }
      this.cursor = this.add("path", "cursor");
      this.tie = this.add("path", "tie");
    }

    add(name, css) {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      made.setAttribute("class", css);
      this.svg.append(made);
      return made;
    }

    resize() {
      const width = this.frame.clientWidth;
      if (!width || width === this.width) return;
      this.width = width;
      this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
      this.plot.setAttribute("width", this.plotWidth() + 2 * this.margin);
      all(".ground", this.svg).forEach((e) => e.setAttribute("width", width));
      this.draw();
    }

    plotWidth() { return Math.max(this.width - this.gutter - this.right, 50); }
    x(t) { return this.gutter + ((t - this.from) / (this.to - this.from)) * this.plotWidth(); }
    t(x) { return this.from + ((x - this.gutter) / this.plotWidth()) * (this.to - this.from); }

    view(from, to) {
      const least = Math.min(1, this.length);
      const span = Math.min(Math.max(to - from, least), this.length);
      const start = Math.min(Math.max(from + (to - from - span) / 2, 0), this.length - span);
      this.from = start;
      this.to = start + span;
      if (this.queued) return;
      this.queued = true;
      requestAnimationFrame(() => { this.queued = false; this.draw(); });
    }

    zoom(factor, around = (this.from + this.to) / 2) {
      this.view(around - (around - this.from) * factor, around + (this.to - around) * factor);
    }

    draw() {
      if (!this.width) return;
      const left = this.gutter - 20;
      const right = this.width + 20;
      for (const { e, t0, t1 } of this.spans) {
        const a = Math.max(this.x(t0), left);
        const b = Math.min(this.x(t1), right);
        e.setAttribute("x", a.toFixed(1));
        e.setAttribute("width", Math.max(b - a, b < left || a > right ? 0 : 1).toFixed(1));
      }
      for (const { e, t0, t1, need } of this.fits) {
        const a = Math.max(this.x(t0), this.gutter);
        const room = Math.min(this.x(t1), this.width) - a;
        e.style.display = room >= need ? "" : "none";
        e.setAttribute("x", (a + 4).toFixed(1));
      }
      for (const { e, t0, t1 } of this.beside) {
        e.style.display = this.x(t1) < this.gutter ? "none" : "";
        e.setAttribute("x", (Math.max(this.x(t0), this.gutter) + 4).toFixed(1));
      }
      const scale = (this.plotWidth() / 1000) * (this.length / (this.to - this.from));
      for (const e of this.bars) {
        e.setAttribute("transform", `translate(${this.x(0).toFixed(2)} 0) scale(${scale} 1)`);
      }
      for (const { e, t } of this.marks) {
        const x = this.x(t);
        const seen = x > left && x < right;
        e.style.display = seen ? "" : "none";
        if (seen) e.setAttribute("x", x.toFixed(1));
      }
      this.ticks();
      this.point();
      this.range.textContent = `${seconds(this.from)} to ${seconds(this.to)}`;
    }

    ticks() {
      const span = this.to - this.from;
      const most = this.plotWidth() / 95;
      const steps = [0.01, 0.02, 0.05];
      for (let e = 0.1; e < 1e8; e *= 10) steps.push(e, 2 * e, 5 * e);
      const step = steps.find((s) => span / s <= most);
      let drawn = "";
      for (let n = Math.ceil(this.from / step); n * step <= this.to; n++) {
        const x = this.x(n * step).toFixed(1);
        drawn += `<path d="M${x} ${this.top - 4}V${this.height}"/><text x="${+x + 3}" y="${this.top - 9}">${seconds(n * step)}</text>`;
      }
      this.axis.innerHTML = drawn;
    }

    point() {
      const mark = this.chosen;
      this.cursor.setAttribute("d", mark ? `M${this.x(mark.t)} ${this.top}V${this.height}` : "");
      const other = this.tied;
      const tied = mark && other;
      this.tie.setAttribute("d", tied ? `M${this.x(other.t)} ${other.y}L${this.x(mark.t)} ${mark.y}` : "");
    }

    choose(mark, tied = null, speak = true) {
      all(".found", this.svg).forEach((e) => e.classList.remove("found"));
      this.chosen = mark;
      this.tied = tied;
      if (!mark) { this.tell([]); this.draw(); return; }
      for (const found of [mark, tied]) {
        if (found) { found.e.classList.add("found"); found.e.parentNode.append(found.e); }
      }
      if (mark.t < this.from || mark.t > this.to) {
        const half = (this.to - this.from) / 2;
        this.view(mark.t - half, mark.t + half);
      }
      this.draw();
      if (speak) this.tell(tied ? [mark.text, tied.text] : [mark.text], this.x(mark.t), mark.y);
    }

    step(by, shape) {
      const among = this.marks.filter((m) => !shape || m.e.classList.contains(shape));
      if (!among.length) return;
      const here = this.chosen ? this.marks.indexOf(this.chosen) : -1;
      const places = among.map((m) => this.marks.indexOf(m));
      let next = by > 0 ? places.findIndex((p) => p > here) : places.findLastIndex((p) => p < here);
      if (here < 0 && by > 0) next = Math.max(among.findIndex((m) => m.t >= this.from), 0);
      if (next < 0) next = by > 0 ? 0 : among.length - 1;
      this.choose(among[next]);
    }

    tell(texts, x = 0, y = 0) {
      this.tip.hidden = !texts.length;
      if (!texts.length) return;
      const few = texts.slice(0, KEEP);
      if (texts.length > KEEP) few.push(`and ${texts.length - KEEP} more here`);
      this.tip.replaceChildren(...few.map((text) => {
        const p = document.createElement("p");
        p.textContent = text;
        return p;
      }));
      const box = this.tip.getBoundingClientRect();
      const room = this.frame.getBoundingClientRect();
      this.tip.style.left = `${Math.max(4, Math.min(x + 14, room.width - box.width - 6))}px`;
      const below = y + 18 + box.height < room.height;
      this.tip.style.top = `${Math.max(4, below ? y + 18 : y - box.height - 14)}px`;
    }

    hover(x, y) {
      const t = this.t(x);
      const near = this.marks
        .filter((m) => Math.abs(this.x(m.t) - x) <= REACH && Math.abs(m.y - y) <= 14)
        .sort((a, b) => Math.abs(a.t - t) - Math.abs(b.t - t))
        .map((m) => m.text);
      const around = this.titled
        .filter((s) => !s.e.hasAttribute("hidden") && x >= this.gutter && t >= s.t0 && t <= s.t1 && y >= s.y - 1 && y <= s.y + s.h + 1)
        .map((s) => s.text);
      this.tell([...near, ...around], x, y);
    }

    listen() {
      const svg = this.svg;
      svg.setAttribute("tabindex", "0");
      const place = (event) => {
        const box = svg.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top];
      };
      let drag = null;
      svg.addEventListener("pointerdown", (event) => {
        drag = { x: event.clientX, from: this.from, to: this.to };
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener("pointermove", (event) => {
        const [x, y] = place(event);
        if (!drag) { this.hover(x, y); return; }
        svg.classList.add("dragging");
        const by = ((drag.x - event.clientX) / this.plotWidth()) * (drag.to - drag.from);
        const from = Math.min(Math.max(drag.from + by, 0), this.length - (drag.to - drag.from));
        this.view(from, from + (drag.to - drag.from));
      });
      const done = () => { drag = null; svg.classList.remove("dragging"); };
      svg.addEventListener("pointerup", done);
      svg.addEventListener("pointercancel", done);
      svg.addEventListener("pointerleave", () => { if (!drag) this.tell([]); });
      svg.addEventListener("dblclick", (event) => this.zoom(0.4, this.t(place(event)[0])));
      svg.addEventListener("wheel", (event) => {
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          this.zoom(Math.exp(event.deltaY * 0.004), this.t(place(event)[0]));
        } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          event.preventDefault();
          this.pan((event.deltaX || event.deltaY) / this.plotWidth());
        }
      }, { passive: false });
      const does = {
        in: () => this.zoom(0.5), out: () => this.zoom(2), all: () => this.view(0, this.length),
        next: () => this.step(1), previous: () => this.step(-1),
        violation: () => this.step(1, "violation"),
      };
      all("[data-do]", this.section).forEach((e) => e.addEventListener("click", does[e.dataset.do]));
      const keys = {
        ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15),
        "+": does.in, "=": does.in, "-": does.out, 0: does.all, n: does.next, p: does.previous,
        v: does.violation, Escape: () => this.choose(null),
      };
      svg.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
        event.preventDefault();
        keys[event.key]();
      });
    }

    pan(share) {
      const span = this.to - this.from;
      const from = Math.min(Math.max(this.from + span * share, 0), this.length - span);
      this.view(from, from + span);
    }

    jump(id, otherId) {
      const find = (wanted) => this.marks.find((m) => m.e.id === wanted) || null;
      const mark = find(id);
      if (!mark) return;
      const other = find(otherId);
      const first = Math.min(mark.t, other ? other.t : mark.t);
      const last = Math.max(mark.t, other ? other.t : mark.t);
      const margin = Math.max((last - first) * 0.35, 400);
      this.view(first - margin, last + margin);
      this.section.querySelector("figure").scrollIntoView({ block: "start" });
      this.svg.focus({ preventScroll: true });
      requestAnimationFrame(() => this.choose(mark, other));
    }
  }

  const seconds = (ms) => `${+(ms / 1000).toFixed(ms < 10 ? 5 : 3)} s`;

  // ------------------------------------------------------------------------------------ the run
  const section = document.querySelector("section.run");
  if (!section) return;
  const timeline = new Timeline(section);
  timeline.resize();
  all("a.jump").forEach((e) => e.addEventListener("click", (event) => {
    event.preventDefault();
    const id = e.getAttribute("href").slice(1);
    history.replaceState(null, "", `#${id}`);
    timeline.jump(id, e.dataset.with);
  }));

  // A reader chooses the scope whose holders the bands show beside the nodes' own states.
  const chooser = section.querySelector("select[data-scopes]");
  if (chooser) {
    chooser.addEventListener("change", () => {
      const wanted = chooser.value;
      all(".span", timeline.svg).forEach((e) => {
        const chosen = e.dataset.scope !== undefined;
        e.toggleAttribute("hidden", wanted ? e.dataset.scope !== wanted && !e.classList.contains("phase") : chosen);
      });
    });
  }

  // ----------------------------------------------------------------------------------- verdicts
  const buttons = all(".filters button", section);
  buttons.forEach((button) => button.addEventListener("click", () => {
    const wanted = button.dataset.verdict;
    buttons.forEach((b) => b.setAttribute("aria-pressed", String(b === button)));
    all("table.verdicts tbody tr", section).forEach((row) => {
      row.hidden = Boolean(wanted) && row.dataset.verdict !== wanted;
    });
  }));

  // A link to an event or a violation opens there.
  if (/^#[ev]\d+$/.test(location.hash)) {
    requestAnimationFrame(() => timeline.jump(location.hash.slice(1)));
  }
})();
