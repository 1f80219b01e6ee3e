"""Fetches a card and verifies its signature with a2a-sdk's own verifier.

Run: python card_signature.py CARD_URL
Needs: a2a-sdk[signing] (1.3.0). Exit code 0: the signature is valid, and becomes invalid when the card is changed.
"""

import asyncio
import json
import sys
import urllib.request

import httpx
from a2a.client.card_resolver import A2ACardResolver
from a2a.utils.signing import (
    InvalidSignaturesError,
    create_signature_verifier,
)
from jwt import PyJWKSet


def key_of(kid, jku):
    with urllib.request.urlopen(jku) as answer:
        return PyJWKSet.from_dict(json.load(answer))[kid]


async def main(url):
    base, path = url.split('/.well-known/')
    verify = create_signature_verifier(key_of, ['ES256'])
    # With the version in the request, the response is the 1.0 card; without it, the card can also have members of 0.3.
    for headers in ({'A2A-Version': '1.0'}, {}):
        async with httpx.AsyncClient(headers=headers) as client:
            resolver = A2ACardResolver(client, base, '/.well-known/' + path)
            card = await resolver.get_agent_card(signature_verifier=verify)
        card.description += ' changed'
        try:
            verify(card)
        except InvalidSignaturesError:
            print('verified', url, headers)
        else:
            sys.exit('a changed card passed as signed')


asyncio.run(main(sys.argv[1]))
