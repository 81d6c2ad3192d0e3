#!/usr/bin/env python3
"""The official agent library, forwarding to an address until it is ended; says where as JSON."""
import asyncio, json, os, sys

import ngrok


async def main():
    builder = ngrok.SessionBuilder().authtoken(os.environ["GINNEL_AUTHTOKEN"]).server_addr(os.environ["GINNEL_SERVER_ADDR"])
    session = await builder.ca_cert(bytearray(open(os.environ["CA"], "rb").read())).connect()
    listener = await session.http_endpoint().listen_and_forward(f"http://{sys.argv[1]}")
    print(json.dumps({"public_url": listener.url()}), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
