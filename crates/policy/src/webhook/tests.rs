//! Signatures that providers have published.
use http::HeaderName;

use super::*;

struct Published {
    provider: &'static str,
    secret: &'static str,
    url: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
    at: i64,
}

/// From the documentation of GitHub ("Validating webhook deliveries"), Slack ("Verifying requests from
/// Slack"), Svix ("Verifying webhooks manually") and Twilio ("Webhooks security").
const PUBLISHED: &[Published] = &[
    Published {
        provider: "github",
        secret: "It's a Secret to Everybody",
        url: "https://example.com/",
        headers: &[(
            "x-hub-signature-256",
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        )],
        body: "Hello, World!",
        at: 0,
    },
    Published {
        provider: "slack",
        secret: "8f742231b10e8888abcd99yyyzzz85a5",
        url: "https://example.com/",
        headers: &[
            ("x-slack-request-timestamp", "1531420618"),
            (
                "x-slack-signature",
                "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
            ),
        ],
        body: "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&\
               channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&\
               command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2F\
               commands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=\
               398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
        at: 1_531_420_618,
    },
    Published {
        provider: "svix",
        secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        url: "https://example.com/",
        headers: &[
            ("svix-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("svix-timestamp", "1614265330"),
            ("svix-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ],
        body: r#"{"test": 2432232314}"#,
        at: 1_614_265_330,
    },
    Published {
        provider: "twilio",
        secret: "12345",
        url: "https://mycompany.com/myapp.php?foo=1&bar=2",
        headers: &[("x-twilio-signature", "0/KCTR6DLpKmkAf8muzZqo1nDgQ=")],
        body: "CallSid=CA1234567890ABCDE&Caller=%2B12349013030&Digits=1234&From=%2B12349013030&\
               To=%2B18005551212",
        at: 0,
    },
];

impl Published {
    fn is_verified(&self, body: &str, seconds_later: i64) -> bool {
        let pairs = self.headers.iter();
        let pairs = pairs.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value));
        let headers = pairs.map(|(name, value)| (name, value.parse().unwrap())).collect();
        let body = Bytes::copy_from_slice(body.as_bytes());
        let (method, url) = (&Method::POST, self.url);
        let signed = Signed { method, headers: &headers, body: &body, url };
        let now = DateTime::from_timestamp(self.at + seconds_later, 0).unwrap();
        Provider::from_name(self.provider).unwrap().verifies_request(self.secret, &signed, now)
    }
}

#[test]
fn published_signatures_are_verified() {
    for one in PUBLISHED {
        assert!(one.is_verified(one.body, 0), "{}", one.provider);
        assert!(!one.is_verified(&format!("{}&a=b", one.body), 0), "{} forged", one.provider);
        let is_timed = one.at != 0;
        assert_eq!(one.is_verified(one.body, 3600), !is_timed, "{} late", one.provider);
    }
}

#[test]
fn the_table_is_sorted_by_name_and_every_scheme_can_be_met() {
    assert!(PROVIDERS.is_sorted_by_key(|provider| provider.name));
    for scheme in PROVIDERS.iter().flat_map(|provider| provider.schemes) {
        assert!(scheme.header.chars().all(|one| !one.is_uppercase()), "{}", scheme.header);
        assert!(!scheme.content.is_empty());
    }
}

#[test]
fn times_are_read_in_the_forms_that_providers_have() {
    for time in ["1714557600", "1714557600000", "2024-05-01T10:00:00Z", "2024-05-01T12:00:00+02:00"]
    {
        assert_eq!(unix_seconds(time), Some(1_714_557_600), "{time}");
    }
    assert_eq!(unix_seconds("2024-05-01T10:00:00.123456"), Some(1_714_557_600));
    assert_eq!(unix_seconds("soon"), None);
}
