//! Masks what should not be seen over a shoulder, or travel in an export or a log.
//!
//! This is the only place that does: the agent's page and its exports, lines of the terminal, tables of
//! the command line, events, cassettes, and what Python shows of captured traffic all come here. The operation
//! tables decide ([`CallMask`]), names ([`secrets`](super::secrets)), and the forms that credentials are known by.
//! Below a secret name, and in a pair with one, all but a number, a boolean or null is hidden, and so is text that
//! cannot be parsed there.
//! Too much is masked rather than too little. The bytes themselves stay exact, wherever they can be had.

mod anchors;
mod body;
mod brackets;
mod call;
mod charset;
mod commands;
mod comments;
mod credentials;
mod descriptions;
mod elements;
mod escapes;
mod events;
mod fields;
mod graphql;
mod json;
mod labels;
mod mark;
mod markup;
mod markup_pairs;
mod message;
mod name_value;
mod named_value;
mod object_kinds;
mod parts;
mod pieces;
mod quotes;
mod schemes;
mod script;
mod sentences;
mod table;
mod text;
mod work;
mod yaml;

pub use body::body;
pub use call::{CallMask, CallSide, arguments, record};
pub use fields::{header, is_content, login, pairs, path, target, url};
pub use json::{definition, json, value, value_in_form};
pub use mark::MASK;
pub use message::message;
pub use object_kinds::secret_members;
pub use text::text;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn check(mask: impl Fn(&str) -> String, cases: &[(&str, &str)]) {
        for (shown, expected) in cases {
            let expected = expected.replace('$', MASK);
            assert_eq!(mask(shown), expected, "{shown}");
            assert_eq!(mask(&expected), expected, "{shown} twice");
        }
    }

    /// Texts that repeat one piece. Scanners that search from each piece to the end need quadratic time for them.
    const HOSTILE_PIECES: [&str; 76] = [
        "\\'",
        "\\\"",
        "'a\\\"",
        "[\\'",
        "$token:",
        "$cookie: ",
        "cookie: ",
        "authorization: a b ",
        "token=[token={",
        "max_tokens=[",
        "\"\"\"token=",
        "password=\"\\\"",
        "name=a(",
        "(\"token\"",
        "{\"name\":\"token\",\"value\":",
        "&token,",
        "<a b='",
        "<p><name>token</name><value>1",
        "<!--<![CDATA[<?",
        "</token><token>",
        "token:\n - \"a\n",
        "- name: token\n  value: 1\n",
        "token: [\n",
        "://a@b",
        "eyJaaaa.a ",
        "\r\n--a\r\n\r\n",
        "[",
        "{\"a\":",
        "<password>",
        "<a>",
        "<",
        "&",
        "=",
        "\"",
        "password:\n",
        "token: x\n",
        "a: &a [*a]\npassword: *a\n",
        "a=b&",
        "a=%3Ftoken%3Db&",
        "{a(b:",
        "$a:b{\"variables\":\"$",
        "<!ENTITY a \"",
        "<!ENTITY a \"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\"><b>&a;&a;&a;&a;",
        "<!ENTITY a \"&b;&b;\"><!ENTITY b \"&c;&c;\"><!ENTITY c \"cccc\"><b c='&a;'>&a;",
        "<script>token=`",
        "<script>token=[",
        "let token=`${",
        "-----BEGIN PRIVATE KEY-----",
        "curl -u a:b ",
        "Digest a=b, ",
        "https://hooks.slack.com/services/",
        "{\"kind\":\"SecretList\",\"data\":{",
        "? |-\n  password\n: a\n",
        "{\"key\":\"a.b\",\"size\":[",
        "\r--a\r\r",
        "\",\n",
        "token: <b>",
        "<td>token</td>",
        "{\"token\":{\"type\":\"string\",\"title\":\"",
        "{\"dependencies\":{\"token\":\"1.2\",",
        "token:\n  type: string\n",
        "a%3D",
        "%252525",
        "machine a password ",
        "IDENTIFIED BY '",
        "Private-Lines: 1 ",
        "a/reset-password/b:",
        "grant_type=a&code=b&",
        "token/*",
        " --token '",
        " --token \"\\'",
        "'--token', '",
        "mysql -p'\\",
        "\"token\" // a",
        "{\"token\"/**//*",
        "token: // a\n",
    ];

    /// The largest number of looks at each byte of a text.
    const MAX_LOOKS: usize = 40;

    #[test]
    fn longer_texts_need_work_in_proportion() {
        const SHORT_BYTES: usize = 512;
        for piece in HOSTILE_PIECES {
            for (media_type, start) in [
                ("application/json", "['"),
                ("text/plain", ""),
                ("application/yaml", "a: b\n"),
                ("text/html", "<html>"),
                ("application/x-www-form-urlencoded", "a="),
                ("multipart/form-data", "--a\n\n"),
                ("text/csv", "token,a\n"),
            ] {
                let work = |bytes: usize| {
                    let text = start.to_owned() + &piece.repeat(bytes / piece.len());
                    work::during(|| drop(std::hint::black_box(body(media_type, text.as_bytes()))))
                };

                let (short, long) = (work(SHORT_BYTES), work(2 * SHORT_BYTES));

                let place = format!("{media_type} {start}{piece}: {short} and {long}");
                assert!(long <= short * 5 / 2 + SHORT_BYTES, "{place}");
                assert!(long <= 2 * SHORT_BYTES * MAX_LOOKS, "{place}");
            }
        }
    }

    #[test]
    fn headers_keep_what_says_nothing() {
        for (name, value, expected) in [
            ("Authorization", "Bearer abc", "Bearer $"),
            ("Authorization", "abc", "$"),
            ("Authorization", "Custom abc", "Custom $"),
            ("X-Foo", "Bearer abc", "Bearer $"),
            ("X-Foo", "bearer\tabc", "bearer $"),
            ("X-Foo", "ApiKey abc", "ApiKey $"),
            ("X-Foo", "Token token=\"abc\"", "Token $"),
            ("X-Foo", "Digest username=\"me\", response=\"abc\"", "Digest $"),
            ("X-Foo", "Bearer:abc", "Bearer: $"),
            ("X-Foo", "Bearer: abc", "Bearer: $"),
            ("X-Foo", "bearer:", "bearer:"),
            ("Authentication", "abc", "$"),
            ("DPoP", "abc", "$"),
            ("Sec-WebSocket-Protocol", "bearer, abc", "$"),
            ("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.abc, v4", "$"),
            ("Sec-WebSocket-Protocol", "graphql-ws, mqtt", "graphql-ws, mqtt"),
            ("X-Foo", "bearer", "bearer"),
            ("X-Foo", "Bears eat", "Bears eat"),
            ("X-RateLimit-Remaining-Tokens", "4000", "4000"),
            ("X-Token", "4000", "$"),
            ("X-Foo", "a=1, api_key=abc", "a=1, api_key=$"),
            ("WWW-Authenticate", "Basic realm=\"shop\"", "Basic realm=\"shop\""),
            ("Authentication-Info", "nextnonce=\"abc\", qop=auth", "$"),
            ("Proxy-Authentication-Info", "rspauth=\"abc\"", "$"),
            (
                "X-Foo",
                "https://hooks.slack.com/services/T0/B0/abc",
                "https://hooks.slack.com/services/$",
            ),
            ("X-Token-Type", "jwt", "jwt"),
            ("Cookie", "a=b; c=d;e", "a=$; c=$; $"),
            ("Set-Cookie", "a=b; Path=/; Secure", "a=$; Path=/; Secure"),
            ("Accept", "*/*", "*/*"),
            ("Host", "token:8080", "token:8080"),
            (
                "Location",
                "https://a.test/b?state=1&access_token=x#id_token=y&z=1",
                "https://a.test/b?state=1&access_token=$#id_token=$&z=1",
            ),
            ("Referer", "https://a.test/#token", "https://a.test/#token"),
            ("Referer", "https://me:pass@a.test/b", "https://$@a.test/b"),
        ] {
            assert_eq!(header(name, value), expected.replace('$', MASK), "{name}: {value}");
        }
    }

    #[test]
    fn parameters_are_masked_in_place() {
        check(
            |shown| target(shown).into_owned(),
            &[
                ("/a?x=1&token=abc&y=2", "/a?x=1&token=$&y=2"),
                ("/a?api%5Fkey=abc&token=", "/a?api%5Fkey=$&token="),
                ("/a?%74oken=abc", "/a?%74oken=$"),
                ("/token/abc", "/token/abc"),
                ("/a?x=1;token=abc;y=2", "/a?x=1;token=$;y=2"),
                ("/a?token=abc;def&y=2", "/a?token=$;$&y=2"),
                ("/a?token=abc;def==&y=2", "/a?token=$;$&y=2"),
                ("/a;token=abc/b;v=1", "/a;token=$/b;v=1"),
                ("/a;jsessionid=abc?x=1", "/a;jsessionid=$?x=1"),
                ("/a;%74oken=abc", "/a;%74oken=$"),
                ("/token=abc/b", "/token=$/b"),
                ("/a#token=abc&y=2", "/a#token=$&y=2"),
                ("/a#/b?code=abc&y=2", "/a#/b?code=$&y=2"),
                ("http://me:pass@a.test/b", "http://$@a.test/b"),
                ("//me:pass@a.test/b", "//$@a.test/b"),
                ("/a?next=http://me:pass@a.test/", "/a?next=http://$@a.test/"),
                ("/a?next=http%3A%2F%2Fa.test%2F%3Ftoken%3Dabc&y=2", "/a?next=$&y=2"),
                (
                    "/a?next=http%3A%2F%2Fa.test%2F%3Fy%3D2",
                    "/a?next=http%3A%2F%2Fa.test%2F%3Fy%3D2",
                ),
                ("/a?mail=me@a.test&y", "/a?mail=me@a.test&y"),
                ("/a?token%3Dabc&y=2", "/a?$&y=2"),
                ("/a?y%3Dabc&token", "/a?y%3Dabc&token"),
                ("/a?max_tokens=100&token=100", "/a?max_tokens=100&token=$"),
                ("/a?name=token&value=abc", "/a?name=token&value=$"),
                (
                    "/a?v%5B0%5D%5Bvalue%5D=abc&v[0][name]=pin&v[1][value]=c",
                    "/a?v%5B0%5D%5Bvalue%5D=$&v[0][name]=pin&v[1][value]=c",
                ),
                ("/a?name=shop&value=abc", "/a?name=shop&value=abc"),
                ("/a?field=password&content=abc", "/a?field=password&content=$"),
                ("/a?name=auth-service&content=abc", "/a?name=auth-service&content=abc"),
                (
                    "/a?recovery_codes=abc&cardNumber=4111&seed=42",
                    "/a?recovery_codes=$&cardNumber=$&seed=42",
                ),
                ("/a?token_type=abc&contrase%C3%B1a=abc", "/a?token_type=abc&contrase%C3%B1a=$"),
                ("*", "*"),
                ("", ""),
            ],
        );
    }

    #[test]
    fn a_key_where_a_name_belongs_is_masked() {
        for text in ["-----BEGIN PRIVATE KEY-----", "a\nb", "swordfish\r"] {
            assert_eq!(path(Path::new(text)), MASK, "{text}");
        }
        assert_eq!(path(Path::new("/srv/token=1/a key.pem")), "/srv/token=1/a key.pem");
    }

    #[test]
    fn values_are_masked_by_the_names_of_their_members() {
        let mut shown = serde_json::json!({
            "token": "abc", "empty_token": "", "a": [{"secret": [1]}, "x?token=abc"], "b": null,
            "max_tokens": 1,
        });
        value(&mut shown);
        let expected = serde_json::json!({
            "token": MASK, "empty_token": "", "a": [{"secret": [1]}, format!("x?token={MASK}")],
            "b": null, "max_tokens": 1,
        });
        assert_eq!(shown, expected);
    }
}
