// A request that another view suggests to the form that tries an endpoint.

const suggestions = new Map();

/** Suggest {body, type, model} for an endpoint. */
export function suggestBody(endpoint, request) {
  suggestions.set(endpoint, request);
}

/** What was suggested for an endpoint, once; null for nothing. */
export function takeSuggestion(endpoint) {
  const request = suggestions.get(endpoint) ?? null;
  suggestions.delete(endpoint);
  return request;
}
