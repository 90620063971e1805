// Elements of tensors as text and as bytes.

const little = true;

function half(value) {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, value);
  const bits = view.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 0xff) - 112;
  const fraction = bits & 0x7fffff;
  if (((bits >>> 23) & 0xff) === 0xff) return sign | 0x7c00 | (fraction ? 0x200 : 0);
  if (exponent >= 31) return sign | 0x7c00;
  if (exponent <= 0) {
    if (exponent < -10) return sign;
    const shift = 14 - exponent;
    return sign | (((fraction | 0x800000) + (1 << (shift - 1))) >> shift);
  }
  return (sign | (exponent << 10) | (fraction >> 13)) + ((fraction >> 12) & 1);
}

function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 0x3ff;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -14 * (fraction / 1024);
}

function brain(value) {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, value);
  const bits = view.getUint32(0);
  return Number.isNaN(value) ? 0x7fc0 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

function fromBrain(bits) {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, bits << 16);
  return view.getFloat32(0);
}

const whole = (text) => {
  const value = Number(text);
  if (!Number.isInteger(value)) throw new Error(`'${text}' is not a whole number`);
  return value;
};
const real = (text) => {
  if (/^[+-]?(nan|inf(inity)?)$/i.test(text)) return /nan/i.test(text) ? NaN : text.startsWith("-") ? -Infinity : Infinity;
  const value = Number(text);
  if (text === "" || Number.isNaN(value)) throw new Error(`'${text}' is not a number`);
  return value;
};
const truth = (text) => {
  if (/^(true|1)$/i.test(text)) return true;
  if (/^(false|0)$/i.test(text)) return false;
  throw new Error(`'${text}' is neither true nor false`);
};

/** Datatype → size in bytes, how to read its text, and how it is written to and read from a DataView. */
export const DATATYPES = {
  BOOL: { size: 1, parse: truth, put: (v, i, x) => v.setUint8(i, x ? 1 : 0), get: (v, i) => v.getUint8(i) !== 0 },
  UINT8: { size: 1, parse: whole, low: 0, high: 255, put: (v, i, x) => v.setUint8(i, x), get: (v, i) => v.getUint8(i) },
  INT8: { size: 1, parse: whole, low: -128, high: 127, put: (v, i, x) => v.setInt8(i, x), get: (v, i) => v.getInt8(i) },
  UINT16: { size: 2, parse: whole, low: 0, high: 65535, put: (v, i, x) => v.setUint16(i, x, little), get: (v, i) => v.getUint16(i, little) },
  INT16: { size: 2, parse: whole, low: -32768, high: 32767, put: (v, i, x) => v.setInt16(i, x, little), get: (v, i) => v.getInt16(i, little) },
  UINT32: { size: 4, parse: whole, low: 0, high: 2 ** 32 - 1, put: (v, i, x) => v.setUint32(i, x, little), get: (v, i) => v.getUint32(i, little) },
  INT32: { size: 4, parse: whole, low: -(2 ** 31), high: 2 ** 31 - 1, put: (v, i, x) => v.setInt32(i, x, little), get: (v, i) => v.getInt32(i, little) },
  UINT64: { size: 8, parse: BigInt, put: (v, i, x) => v.setBigUint64(i, BigInt(x), little), get: (v, i) => v.getBigUint64(i, little) },
  INT64: { size: 8, parse: BigInt, put: (v, i, x) => v.setBigInt64(i, BigInt(x), little), get: (v, i) => v.getBigInt64(i, little) },
  FP16: { size: 2, parse: real, put: (v, i, x) => v.setUint16(i, half(x), little), get: (v, i) => fromHalf(v.getUint16(i, little)) },
  BF16: { size: 2, parse: real, put: (v, i, x) => v.setUint16(i, brain(x), little), get: (v, i) => fromBrain(v.getUint16(i, little)) },
  FP32: { size: 4, parse: real, put: (v, i, x) => v.setFloat32(i, x, little), get: (v, i) => v.getFloat32(i, little) },
  FP64: { size: 8, parse: real, put: (v, i, x) => v.setFloat64(i, x, little), get: (v, i) => v.getFloat64(i, little) },
};

export const isNumeric = (datatype) => datatype in DATATYPES && datatype !== "BOOL";
export const elements = (shape) => shape.reduce((product, size) => product * size, 1);

/** The values that a text spells: numbers apart by commas or spaces, with brackets or without. */
export function parseValues(text, datatype) {
  const kind = DATATYPES[datatype];
  const values = text.replace(/[[\](),;]/g, " ").split(/\s+/).filter(Boolean).map(kind.parse);
  for (const value of values) {
    if (kind.low !== undefined && (value < kind.low || value > kind.high)) throw new Error(`${value} is not from ${kind.low} to ${kind.high}, as ${datatype} needs`);
  }
  return values;
}

/** The bytes of values: little-endian; of BYTES each with its length before it. Values of BYTES are texts or bytes. */
export function encode(values, datatype) {
  if (datatype === "BYTES") {
    const texts = values.map((value) => (typeof value === "string" ? new TextEncoder().encode(value) : value));
    const out = new Uint8Array(texts.reduce((sum, text) => sum + 4 + text.length, 0));
    const view = new DataView(out.buffer);
    let at = 0;
    for (const text of texts) {
      view.setUint32(at, text.length, little);
      out.set(text, at + 4);
      at += 4 + text.length;
    }
    return out;
  }
  const { size, put } = DATATYPES[datatype];
  const out = new Uint8Array(values.length * size);
  const view = new DataView(out.buffer);
  values.forEach((value, i) => put(view, i * size, value));
  return out;
}

/** The values of bytes: the reverse; elements of BYTES as bytes. */
export function decode(bytes, datatype) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values = [];
  if (datatype === "BYTES") {
    for (let at = 0; at < bytes.length;) {
      const size = view.getUint32(at, little);
      values.push(bytes.subarray(at + 4, at + 4 + size));
      at += 4 + size;
    }
    return values;
  }
  const { size, get } = DATATYPES[datatype];
  for (let at = 0; at < bytes.length; at += size) values.push(get(view, at));
  return values;
}
