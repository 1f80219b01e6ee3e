// Fetches a card and verifies its signature with @a2a-js/sdk's own verifier.
//
// Run: node card_signature.mjs CARD_URL
// Needs: @a2a-js/sdk (1.3.0). Exit code 0: the signature holds, and breaks when the card is changed.

import { verifyAgentCardSignature } from '@a2a-js/sdk';
import { DefaultAgentCardResolver } from '@a2a-js/sdk/client';

const url = process.argv[2];
const [base, path] = url.split('/.well-known/');

const verify = verifyAgentCardSignature(async (kid, jku) => {
  const { keys } = await (await fetch(jku)).json();
  return keys.find((key) => key.kid === kid);
});

// The resolver asks for version 1.0; the second one hides that, so that it may get the members of 0.3 too.
const bare = new DefaultAgentCardResolver({ fetchImpl: (url) => fetch(url) });
for (const resolver of [new DefaultAgentCardResolver(), bare]) {
  const card = await resolver.resolve(`${base}/`, `.well-known/${path}`);
  await verify(card);
  const changed = await verify({ ...card, description: `${card.description} changed` }).then(
    () => true,
    () => false,
  );
  if (changed) {
    throw new Error('a changed card passed as signed');
  }
  console.log('verified', url, card.name);
}
