// Fetches a card and verifies its signature with @a2a-js/sdk's own verifier.
//
// Run: node card_signature.mjs CARD_URL
// Needs: @a2a-js/sdk (1.3.0). Exit code 0: the signature is valid, and becomes invalid when the card is changed.
//
// The verifier gets the JSON as received, because a card parsed by the SDK has lost its security schemes.

import { verifyAgentCardSignature } from '@a2a-js/sdk';

const url = process.argv[2];
console.debug = () => {};

const verify = verifyAgentCardSignature(async (kid, jku) => {
  const { keys } = await (await fetch(jku)).json();
  return keys.find((key) => key.kid === kid);
});
const holds = (card) => verify(card).then(
  () => true,
  () => false,
);

// With the version in the request, the response is the 1.0 card; without it, the card can also have members of 0.3.
for (const headers of [{ 'A2A-Version': '1.0' }, {}]) {
  const card = await (await fetch(url, { headers })).json();
  await verify(card);
  const changes = [
    { description: `${card.description} changed` },
    { securitySchemes: {} },
    { supportedInterfaces: card.supportedInterfaces.slice(1) },
  ];
  for (const change of changes) {
    if (await holds({ ...card, ...change })) {
      throw new Error(`a changed card passed as signed: ${JSON.stringify(change)}`);
    }
  }
  console.log('verified', url, headers);
}
