//! Which names say that their value is a secret: the one list, by which [`mask`](super::mask) masks.
//!
//! Too much is masked rather than too little: whoever needs the bytes can have them. The parameter
//! `state` of OAuth is left to be seen: it binds an answer to its question, and opens nothing.

/// Names that hold secrets when they contain one of these.
const SECRET_NAME_PARTS: [&str; 40] = [
    "accesskey",
    "accountkey",
    "apikey",
    "appkey",
    "applicationkey",
    "assertion",
    "authkey",
    "authoris",
    "authoriz",
    "clientkey",
    "codeverifier",
    "consumerkey",
    "cookie",
    "credential",
    "csrf",
    "devicecode",
    "encryptionkey",
    "functionskey",
    "hmac",
    "jwt",
    "licensekey",
    "masterkey",
    "passcode",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "samlresponse",
    "secret",
    "serverkey",
    "servicekey",
    "sessid",
    "session",
    "sharedkey",
    "signature",
    "signingkey",
    "sshkey",
    "subscriptionkey",
    "token",
    "xsrf",
];
/// Names that hold secrets when one of their words is one of these.
const SECRET_WORDS: [&str; 8] = ["auth", "cvc", "cvv", "otp", "pin", "pwd", "sig", "totp"];
/// Names that hold secrets when they are one of these.
const SECRET_NAMES: [&str; 3] = ["key", "pass", "sid"];
/// Beginnings of words that contain the name of a secret and mean something else.
const OTHER_WORDS: [&str; 3] = ["tokeniz", "tokenis", "secretar"];
/// Words of names whose values count or switch something, such as `max_tokens`.
const QUANTITY_WORDS: [&str; 27] = [
    "age",
    "budget",
    "cached",
    "completion",
    "count",
    "enabled",
    "expires",
    "expiry",
    "length",
    "lifetime",
    "limit",
    "max",
    "maximum",
    "min",
    "minimum",
    "num",
    "number",
    "prompt",
    "reasoning",
    "remaining",
    "required",
    "size",
    "timeout",
    "total",
    "ttl",
    "used",
    "version",
];
/// Longer names are not those of quantities, in bytes.
const MAX_QUANTITY_BYTES: usize = 256;
/// Parameters that hold secrets, while members of this name seldom do: with the `code` of OAuth
/// comes a token.
const SECRET_PARAMETERS: [&str; 1] = ["code"];

/// Whether a header, a member or an element of this name holds a secret.
pub fn is_secret(name: &str) -> bool {
    let mut plain = plain(name);
    for other in OTHER_WORDS {
        if plain.contains(other) {
            plain = plain.replace(other, "");
        }
    }
    SECRET_NAMES.contains(&plain.as_str())
        || SECRET_NAME_PARTS.iter().any(|part| plain.contains(part))
        || words(name).iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
}

/// Whether a parameter of a query or a form holds a secret.
pub fn is_secret_parameter(name: &str) -> bool {
    is_secret(name) || SECRET_PARAMETERS.contains(&plain(name).as_str())
}

/// Returns true if a value of this name is visible: a number, a boolean or null.
///
/// Texts without types (forms, XML, logs) write secrets such as PINs in digits as well. In these, the name must
/// also be that of a quantity.
pub fn is_visible_scalar(name: &str, value: &str, is_typed: bool) -> bool {
    is_scalar(value) && (is_typed || is_quantity(name))
}

fn is_quantity(name: &str) -> bool {
    let is_known = |word: &String| QUANTITY_WORDS.contains(&word.as_str());
    name.len() <= MAX_QUANTITY_BYTES && words(name).iter().any(is_known)
}

/// Returns true for a number, a boolean or null, as JSON and YAML write them.
fn is_scalar(value: &str) -> bool {
    let value = value.trim();
    let digits = value.trim_start_matches(['-', '+']);
    matches!(value, "true" | "false" | "null" | "~")
        || value.len() <= digits.len() + 1
            && digits.starts_with(|first: char| first.is_ascii_digit())
            && digits.parse::<f64>().is_ok()
}

/// Returns the last word of a name, as it is written.
pub(super) fn last_word(name: &str) -> &str {
    let end = name.trim_end_matches(|letter: char| !letter.is_ascii_alphabetic());
    let mut start = end.len();
    let mut is_large = false;
    for (at, letter) in end.char_indices().rev() {
        let is_new_word = is_large && letter.is_ascii_lowercase();
        if !letter.is_ascii_alphabetic() || is_new_word {
            break;
        }
        is_large = letter.is_ascii_uppercase();
        start = at;
    }
    end.get(start..).unwrap_or_default()
}

/// The letters and digits of a name, in small letters.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(|letter| letter.is_ascii_alphanumeric());
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

/// The words of a name in small letters, however it parts them: `user-pin`, `user_pin`, `userPin`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut small = false;
    for letter in name.chars() {
        if !letter.is_ascii_alphabetic() || small && letter.is_ascii_uppercase() {
            words.push(String::new());
        }
        small = letter.is_ascii_lowercase();
        if letter.is_ascii_alphabetic()
            && let Some(word) = words.last_mut()
        {
            word.push(letter.to_ascii_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_in_any_spelling() {
        for name in [
            "Authorization",
            "Cookie",
            "Set-Cookie",
            "X-Hub-Signature-256",
            "X-Api-Key",
            "X-Auth-Key",
            "Ocp-Apim-Subscription-Key",
            "DD-APPLICATION-KEY",
            "access_token",
            "clientSecret",
            "code_verifier",
            "PHPSESSID",
            "userPin",
            "key",
            "sig",
            "X-Sig-2",
            "tokenizer_api_key",
            "max_tokens",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "Host",
            "Accept",
            "keyboard",
            "author",
            "design",
            "shipping",
            "Content-Type",
            "Sec-WebSocket-Key",
            "Idempotency-Key",
            "code",
            "state",
            "tokenizer",
            "tokenization_model",
            "secretary",
        ] {
            assert!(!is_secret(name), "{name}");
        }
        assert!(is_secret_parameter("code") && is_secret_parameter("pin"));
        assert!(!is_secret_parameter("country_code") && !is_secret_parameter("state"));
    }

    #[test]
    fn the_last_word_of_a_name_is_found_in_any_spelling() {
        for (name, expected) in [
            ("value", "value"),
            ("ParameterValue", "Value"),
            ("vars[0][name]", "name"),
            ("header_name", "name"),
            ("KEY", "KEY"),
            ("aé", "a"),
            ("", ""),
        ] {
            assert_eq!(last_word(name), expected, "{name}");
        }
    }

    #[test]
    fn numbers_booleans_and_null_are_visible() {
        for value in ["0", "4096", "-1.5e3", "true", "false", "null"] {
            assert!(is_visible_scalar("token", value, true), "{value}");
            assert!(is_visible_scalar("maxTokens", value, false), "{value}");
            assert!(!is_visible_scalar("pin", value, false), "{value}");
        }
        for value in ["", "swordfish", "12ab", "inf", "--1", "1 2", "tru", "0x1f"] {
            assert!(!is_visible_scalar("max_tokens", value, true), "{value}");
        }
    }
}
