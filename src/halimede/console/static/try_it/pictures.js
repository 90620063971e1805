// Pictures as tensors, and tensors as pictures.

/** How a shape may be that of a picture: {height, width, channels, first} or null; `first`: channels come first. */
export function pictureOf(shape) {
  const dims = [...shape];
  while (dims.length > 2 && dims[0] === 1 && dims.length > 3) dims.shift();
  if (dims.length === 3 && [1, 3].includes(dims[2])) return fit({ height: dims[0], width: dims[1], channels: dims[2], first: false });
  if (dims.length === 3 && [1, 3].includes(dims[0])) return fit({ height: dims[1], width: dims[2], channels: dims[0], first: true });
  if (dims.length === 2) return fit({ height: dims[0], width: dims[1], channels: 1, first: false });
  return null;
}

const fit = (picture) => (picture.height >= 8 && picture.width >= 8 && picture.height <= 4096 && picture.width <= 4096 ? picture : null);

/** How numbers are made of the values of pixels, 0 to 255. */
export const SCALES = {
  "0 to 255": (value) => value,
  "0 to 1": (value) => value / 255,
  "−1 to 1": (value) => value / 127.5 - 1,
  "ImageNet mean and deviation": (value, channel) => (value / 255 - [0.485, 0.456, 0.406][channel % 3]) / [0.229, 0.224, 0.225][channel % 3],
  "0 to 16, as scikit-learn's digits": (value) => Math.round(value / 16),
};

/** The values of an image file, resized to a picture's size. */
export async function valuesOf(file, picture, scale) {
  const bitmap = await createImageBitmap(file);
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0, picture.width, picture.height);
  const pixels = context.getImageData(0, 0, picture.width, picture.height).data;
  const { height, width, channels, first } = picture;
  const values = new Array(height * width * channels);
  for (let i = 0; i < height * width; i += 1) {
    for (let channel = 0; channel < channels; channel += 1) {
      const level = channels === 1 ? 0.299 * pixels[4 * i] + 0.587 * pixels[4 * i + 1] + 0.114 * pixels[4 * i + 2] : pixels[4 * i + channel];
      values[first ? channel * height * width + i : i * channels + channel] = SCALES[scale](level, channel);
    }
  }
  return values;
}

/** A canvas with the picture that values are; numbers that are no bytes are spread from the least to the greatest. */
export function draw(values, picture, datatype, label) {
  const { height, width, channels, first } = picture;
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  let [low, high] = [0, 255];
  if (datatype !== "UINT8") {
    low = Math.min(...values.map(Number));
    high = Math.max(...values.map(Number));
  }
  const level = (value) => (high > low ? ((Number(value) - low) / (high - low)) * 255 : 0);
  for (let i = 0; i < height * width; i += 1) {
    for (let channel = 0; channel < 3; channel += 1) {
      const source = Math.min(channel, channels - 1);
      image.data[4 * i + channel] = level(values[first ? source * height * width + i : i * channels + source]);
    }
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
