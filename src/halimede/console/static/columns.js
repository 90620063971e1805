// Series over time, as charts draw them.

export const KEPT_S = 600;

/** Points in time and a column for each series, the same length: those of the last ten minutes. */
export class Columns {
  /** `names` are those of the series. */
  constructor(names) {
    this.times = [];
    this.series = Object.fromEntries(names.map((name) => [name, []]));
  }

  /** Add a point, in which series may lack. */
  add(time, point) {
    this.times.push(time);
    for (const [name, column] of Object.entries(this.series)) column.push(point[name] ?? null);
    if (this.times.length > KEPT_S) {
      this.times.shift();
      for (const column of Object.values(this.series)) column.shift();
    }
  }
}
