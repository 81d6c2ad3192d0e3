// A certified issuer of OpenID Connect, for the tests: logs visitors in by its own forms for development.
// The arguments are a port of this machine, and the addresses that visitors are sent back to.
import Provider from "oidc-provider";

const [port, ...redirects] = process.argv.slice(2);
const account = (id) => ({
  accountId: id,
  claims: () => ({
    sub: id,
    name: `${id} of the tests`,
    email: `${id}@example.com`,
    email_verified: true,
    groups: ["staff"],
  }),
});
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    {
      client_id: "a client",
      client_secret: "a secret:+/",
      redirect_uris: redirects,
      grant_types: ["authorization_code", "refresh_token"],
    },
  ],
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"], groups: ["groups"] },
  findAccount: (_, id) => account(id),
  pkce: { required: () => true },
  cookies: { keys: ["of the tests"] },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
