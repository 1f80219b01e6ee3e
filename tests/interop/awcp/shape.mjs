// Compares messages with recorded ones: every recorded member is there with the same type, and nothing else is.

// Members that the recording has no example of.
const OPTIONAL = ['hint', 'highlights', 'auth', 'metadata', 'message', 'sandboxProfile'];

let checks = 0;

export function sameShape(found, recorded, where) {
  const kind = (value) => (Array.isArray(value) ? 'array' : value === null ? 'null' : typeof value);
  checks += 1;
  if (kind(found) !== kind(recorded)) {
    throw new Error(`${where} is ${kind(found)} ${JSON.stringify(found)?.slice(0, 200)}, recorded as ${kind(recorded)}`);
  }
  if (Array.isArray(recorded)) {
    found.forEach((item, index) => sameShape(item, recorded[0], `${where}[${index}]`));
  } else if (kind(recorded) === 'object') {
    for (const name of Object.keys(recorded)) {
      if (name in found) sameShape(found[name], recorded[name], `${where}.${name}`);
      else if (!OPTIONAL.includes(name)) throw new Error(`${where}.${name} is missing`);
    }
    const unknown = Object.keys(found).filter((name) => !(name in recorded) && !OPTIONAL.includes(name));
    if (unknown.length > 0) throw new Error(`${where} has members that were not recorded: ${unknown}`);
  } else if (['type', 'version', 'transport', 'accessMode', 'mode', 'acceptedAccessMode'].includes(where.split('.').at(-1))) {
    if (found !== recorded) throw new Error(`${where} is ${found}, recorded as ${recorded}`);
  }
}

export function done() {
  console.log(`done ${checks} checks`);
}

// A recorded message with what stands for ids and data replaced.
export function filled(recorded, values) {
  const fill = (value) => {
    if (typeof value === 'string') {
      return Object.entries(values).reduce((text, [name, by]) => (text === name ? by : text.replaceAll(name, by)), value);
    }
    if (Array.isArray(value)) return value.map(fill);
    if (value && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, fill(v)]));
    return value;
  };
  return fill(recorded);
}
