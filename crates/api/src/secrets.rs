//! Which names say that their value is a secret: the one list, by which [`mask`](super::mask) masks.
//!
//! Too much is masked rather than too little: whoever needs the bytes can have them. The parameter
//! `state` of OAuth is left to be seen: it binds an answer to its question, and opens nothing.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// Names that hold secrets if they contain one of these, without separators.
const SECRET_NAME_PARTS: &[&str] = &[
    "2facode",
    "accesscode",
    "accesskey",
    "accountkey",
    "activationcode",
    "adgangskode",
    "apikey",
    "appkey",
    "applicationkey",
    "assertion",
    "authcode",
    "authenticationinfo",
    "authkey",
    "authoris",
    "authoriz",
    "backupcode",
    "backupkey",
    "backupphrase",
    "cardnumber",
    "clientkey",
    "cnonce",
    "codeverifier",
    "confirmationcode",
    "connectionstring",
    "consumerkey",
    "contrasena",
    "contrasenya",
    "cookie",
    "credential",
    "creditcard",
    "csrf",
    "dbpass",
    "debitcard",
    "devicecode",
    "encryptionkey",
    "functionskey",
    "geheimzahl",
    "hmac",
    "jelszo",
    "jwt",
    "katasandi",
    "kennwort",
    "kodeord",
    "licensekey",
    "logincode",
    "losenord",
    "lozinka",
    "masterkey",
    "mfacode",
    "mnemonic",
    "motdepasse",
    "motsdepasse",
    "nextnonce",
    "onetimecode",
    "pairingcode",
    "palavrapasse",
    "passcode",
    "passkey",
    "passord",
    "passphrase",
    "passwd",
    "password",
    "passwort",
    "privatekey",
    "privatemac",
    "privkey",
    "recoverycode",
    "recoverykey",
    "recoveryphrase",
    "resetcode",
    "rspauth",
    "salasana",
    "samlresponse",
    "scratchcode",
    "secret",
    "securitycode",
    "seedphrase",
    "seedword",
    "serverkey",
    "servicekey",
    "sessid",
    "session",
    "sharedkey",
    "signature",
    "signingkey",
    "smscode",
    "socialsecurity",
    "sshkey",
    "subscriptionkey",
    "token",
    "twofactorcode",
    "usercode",
    "userpass",
    "verificationcode",
    "wachtwoord",
    "xsrf",
    "zugangscode",
    "пароль",
    "口令",
    "暗証番号",
    "密码",
    "密碼",
    "パスワード",
    "비밀번호",
];
/// Names that hold secrets if one of their words is one of these.
const SECRET_WORDS: &[&str] = &[
    "auth", "bearer", "cred", "cvc", "cvn", "cvv", "haslo", "heslo", "jeton", "mdp", "otp",
    "parola", "parool", "pin", "pwd", "sas", "senha", "sifre", "sig", "ssn", "totp",
];
/// Names that hold secrets if one of their words or two in a row are one of these: `card_no`, but not `discardNow`.
const SECRET_PHRASES: &[&str] = &["cardno", "ccnum", "ccnumber"];
/// Names that hold secrets if their last word is one of these.
const LAST_SECRET_WORDS: &[&str] = &["pass", "seed", "seeds"];
/// Names that hold secrets if they are one of these.
const SECRET_NAMES: &[&str] = &["clave", "key", "sid"];
/// Beginnings of words that contain the name of a secret and mean something else.
const OTHER_WORDS: &[&str] =
    &["cookieless", "passwordless", "secretar", "sessionless", "tokenis", "tokeniz"];
/// Last words of names that say something about a secret, such as `token_type` and `password_policy`. Their values
/// are not secrets, and members of their values are only secret by their own names.
const DESCRIBING_WORDS: &[&str] = &[
    "alg",
    "algorithm",
    "algorithms",
    "at",
    "attempts",
    "count",
    "counts",
    "date",
    "domain",
    "enabled",
    "endpoint",
    "endpoints",
    "expiration",
    "expired",
    "expires",
    "expiry",
    "format",
    "iframe",
    "issuer",
    "kind",
    "length",
    "lifetime",
    "method",
    "methods",
    "mode",
    "name",
    "names",
    "policies",
    "policy",
    "provider",
    "required",
    "requirements",
    "size",
    "status",
    "strength",
    "supported",
    "timeout",
    "ttl",
    "type",
    "types",
    "usage",
    "version",
    "versions",
];
/// Words in front of `in` and `on` in names that say something about a secret, such as `session_expires_in`.
const TIME_WORDS: &[&str] =
    &["changed", "created", "expire", "expired", "expires", "issued", "updated", "used"];
/// Addresses in metadata of OAuth, OpenAPI and Google. Other addresses with the name of a secret may contain it.
const METADATA_NAMES: &[&str] = &[
    "accesstokenuri",
    "accesstokenurl",
    "authproviderx509certurl",
    "authorizationuri",
    "authorizationurl",
    "authorizeurl",
    "authuri",
    "authurl",
    "requesttokenurl",
    "tokenuri",
    "tokenurl",
];
/// Counts of tokens, which language models report with each response.
const COUNT_NAMES: &[&str] = &[
    "cachetokensdetails",
    "candidatestokensdetails",
    "completiontokensdetails",
    "inputtokendetails",
    "inputtokensdetails",
    "outputtokendetails",
    "outputtokensdetails",
    "prompttokensdetails",
];
/// Members of objects of Kubernetes that have the names of Secrets.
const REFERENCE_NAMES: &[&str] = &["imagepullsecrets", "secretkeyref", "secretref"];
/// The permission for tokens in workflows of GitHub Actions, and its values.
const PERMISSION_NAME: &str = "idtoken";
const PERMISSIONS: &[&str] = &["none", "read", "write"];
/// First words of names that say something about a secret, such as `has_password`.
const ASKING_WORDS: &[&str] = &["has", "is"];
/// Describing words that are found without a separator in front of them, such as `tokentype`, have so many bytes.
const MIN_JOINED_BYTES: usize = 4;
/// Words of names whose values count or switch something, such as `max_tokens`.
const QUANTITY_WORDS: &[&str] = &[
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
    "prompt",
    "reasoning",
    "remaining",
    "required",
    "seed",
    "size",
    "timeout",
    "tokens",
    "total",
    "ttl",
    "used",
    "version",
];
/// Words that make a name that of a quantity if another word follows: `num_tokens`, but not `card_number`.
const FIRST_QUANTITY_WORDS: &[&str] = &["num", "number"];
/// Words behind the name of a secret that do not make it the name of something else: `password_confirmation`.
const REPEATING_WORDS: &[&str] = &["again", "confirm", "confirmation", "repeat", "value"];
/// Longer names are not those of quantities, and have no describing words, in bytes.
const MAX_WORDS_BYTES: usize = 256;
/// Longer texts are not names of secrets in labels, in bytes.
const MAX_LABEL_BYTES: usize = 64;
/// The largest number of words between spaces in a label that is the name of a secret.
const MAX_LABEL_WORDS: usize = 3;
/// Parameters that hold secrets, while members of this name seldom do: with the `code` of OAuth
/// comes a token.
const SECRET_PARAMETERS: &[&str] = &["code"];

/// Returns true if a header, a member or an element of this name holds a secret.
pub fn is_secret(name: &str) -> bool {
    static CANDIDATES: LazyLock<Option<Regex>> = LazyLock::new(|| {
        any_of(&[SECRET_NAME_PARTS, SECRET_WORDS, SECRET_PHRASES, LAST_SECRET_WORDS, SECRET_NAMES])
    });
    static PARTS: LazyLock<Option<Regex>> = LazyLock::new(|| any_of(&[SECRET_NAME_PARTS]));
    let (Some(candidates), Some(parts)) = (CANDIDATES.as_ref(), PARTS.as_ref()) else {
        return true;
    };
    let plain = plain_letters(name);
    if !candidates.is_match(&plain) {
        return false;
    }
    if name.len() > MAX_WORDS_BYTES {
        return parts.is_match(&plain);
    }
    let words = name_words(name);
    if is_describing(&plain, &words) {
        return false;
    }
    let is_one = |known: &[&str], word: &str| known.contains(&word);
    is_one(SECRET_NAMES, &plain)
        || parts.is_match(&without_other_words(&plain))
        || words.iter().any(|word| is_one(SECRET_WORDS, word))
        || words.iter().any(|word| is_one(SECRET_WORDS, word.strip_suffix('s').unwrap_or(word)))
        || words.iter().any(|word| is_one(SECRET_PHRASES, word))
        || words.windows(2).any(|pair| is_one(SECRET_PHRASES, &pair.concat()))
        || words.last().is_some_and(|word| is_one(LAST_SECRET_WORDS, word))
}

/// Returns true if the whole text is the name of a secret: `DB_PASSWORD`, but not `auth-service`.
pub(super) fn is_exact(label: &str) -> bool {
    if label.len() > MAX_LABEL_BYTES
        || label.split_whitespace().count() > MAX_LABEL_WORDS
        || !is_secret(label)
    {
        return false;
    }
    let last = last_word(label);
    let before = label.get(..label.rfind(last).unwrap_or_default()).unwrap_or_default();
    let is_repeating = REPEATING_WORDS.iter().any(|known| last.eq_ignore_ascii_case(known));
    is_repeating || is_secret(last) || !is_secret(before)
}

/// Returns true if the last word of a name describes the value of another.
pub(super) fn has_describing_word(name: &str) -> bool {
    let word = plain_letters(last_word(name));
    DESCRIBING_WORDS.contains(&word.as_str())
}

/// Returns true if a parameter of a query or a form holds a secret.
pub fn is_secret_parameter(name: &str) -> bool {
    is_secret(name) || SECRET_PARAMETERS.contains(&&*plain_letters(name))
}

/// Returns true if a value of this name is visible: a number, a boolean or null, or a list of them.
///
/// Texts without types (forms, XML, logs) write secrets such as PINs in digits as well. In these, the name must
/// also be that of a quantity.
pub fn is_visible_scalar(name: &str, value: &str, is_typed: bool) -> bool {
    if is_permission(name, value) {
        return true;
    }
    match value.trim_start().starts_with('[') {
        true => is_typed && is_list_of_scalars(value, is_quantity(name)),
        false => is_scalar(value) && (is_typed || is_quantity(name)),
    }
}

/// Returns true for a permission to get tokens, which is not a token: `id-token: write`.
pub(super) fn is_permission(name: &str, value: &str) -> bool {
    plain_letters(name) == PERMISSION_NAME
        && PERMISSIONS.contains(&value.trim().trim_matches(['"', '\'']))
}

/// Lists of this many numbers may be the bytes or words of a key.
const MIN_KEY_BYTES: usize = 16;
/// The largest number in the bytes of a key, with a sign or without.
const MAX_KEY_BYTE: u16 = 256;

/// Returns true for a list that contains only numbers, booleans, null and such lists, and that cannot be a key. Long
/// lists of quantities are only keys if all their numbers are bytes.
fn is_list_of_scalars(list: &str, is_quantity: bool) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"[], \t\r\n+-.".contains(&byte);
    if !list.bytes().all(allowed) {
        return false;
    }
    let mut items = list.split([',', '[', ']']).map(str::trim).filter(|item| !item.is_empty());
    let is_byte =
        |item: &str| item.parse::<i16>().is_ok_and(|it| it.unsigned_abs() <= MAX_KEY_BYTE);
    let is_number = |item: &&str| item.contains(|letter: char| letter.is_ascii_digit());
    let is_long = items.clone().filter(is_number).nth(MIN_KEY_BYTES - 1).is_some();
    let may_be_key = is_long && (!is_quantity || items.clone().all(is_byte));
    !may_be_key && items.all(is_scalar)
}

fn is_quantity(name: &str) -> bool {
    if name.len() > MAX_WORDS_BYTES {
        return false;
    }
    let words = name_words(name);
    let is_first = |word: &String| FIRST_QUANTITY_WORDS.contains(&word.as_str());
    words.iter().any(|word| QUANTITY_WORDS.contains(&word.as_str()))
        || words.iter().rev().skip(1).any(is_first)
}

/// Returns true for a number, a boolean or null, as JSON and YAML write them.
pub(super) fn is_scalar(value: &str) -> bool {
    let value = value.trim();
    let digits = value.trim_start_matches(['-', '+']);
    matches!(value, "true" | "false" | "null" | "~")
        || value.len() <= digits.len() + 1
            && digits.starts_with(|first: char| first.is_ascii_digit())
            && digits.parse::<f64>().is_ok()
}

fn any_of(lists: &[&[&str]]) -> Option<Regex> {
    Regex::new(&lists.concat().join("|")).ok()
}

/// Returns true if a name says something about a secret.
fn is_describing(plain: &str, words: &[String]) -> bool {
    let is_joined = |known: &&str| known.len() >= MIN_JOINED_BYTES && plain.ends_with(*known);
    let lists = [METADATA_NAMES, COUNT_NAMES, REFERENCE_NAMES];
    if lists.iter().any(|known| known.contains(&plain)) {
        return true;
    }
    match words {
        [] => false,
        [.., before, last] if matches!(last.as_str(), "in" | "on") => {
            TIME_WORDS.contains(&before.as_str())
        }
        [_] => DESCRIBING_WORDS.iter().any(is_joined),
        [first, .., last] => {
            DESCRIBING_WORDS.contains(&last.as_str()) || ASKING_WORDS.contains(&first.as_str())
        }
    }
}

fn without_other_words(plain: &str) -> Cow<'_, str> {
    let mut rest = Cow::Borrowed(plain);
    for other in OTHER_WORDS {
        if rest.contains(other) {
            rest = rest.replace(other, "").into();
        }
    }
    rest
}

/// Returns the last word of a name, as it is written.
pub(super) fn last_word(name: &str) -> &str {
    let word = word_places(name).pop().unwrap_or_default();
    name.get(word).unwrap_or_default()
}

/// Returns the letters and digits of a name in small letters without accents.
fn plain_letters(name: &str) -> String {
    // Nearly all names are ASCII, and each name of a body comes here.
    if name.is_ascii() {
        let letters = name.bytes().filter(u8::is_ascii_alphanumeric);
        return letters.map(|letter| char::from(letter.to_ascii_lowercase())).collect();
    }
    name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(fold_letter).collect()
}

/// Returns the words of a name in small letters without accents, however it parts them: `user-pin`, `user_pin`,
/// `userPin`, `userPIN`.
fn name_words(name: &str) -> Vec<String> {
    let places = word_places(name).into_iter();
    places.map(|place| plain_letters(name.get(place).unwrap_or_default())).collect()
}

/// Returns the places of the words of a name. All functions of this module part names here.
fn word_places(name: &str) -> Vec<Range<usize>> {
    let mut places: Vec<Range<usize>> = Vec::new();
    let mut letters = name.char_indices().peekable();
    let mut before = ' ';
    while let Some((at, letter)) = letters.next() {
        let end = at + letter.len_utf8();
        let follows_capital = before.is_uppercase() && letter.is_uppercase();
        // `PINCode` has the words `PIN` and `Code`, but `PINs` is one word.
        let begins_word = follows_capital
            && letters.peek().is_some_and(|(_, next)| next.is_lowercase())
            && name.get(end..).is_some_and(|rest| !is_plural_ending(rest));
        let is_new = !before.is_alphabetic() || before.is_lowercase() && letter.is_uppercase();
        match places.last_mut() {
            _ if !letter.is_alphabetic() => {}
            Some(word) if !is_new && !begins_word => word.end = end,
            _ => places.push(at..end),
        }
        // Accents may be letters of their own.
        if !is_accent(letter) {
            before = letter;
        } else if let Some(word) = places.last_mut().filter(|word| word.end == at) {
            word.end = end;
        }
    }
    places
}

fn is_plural_ending(rest: &str) -> bool {
    let mut letters = rest.chars();
    letters.next() == Some('s') && letters.next().is_none_or(|next| !next.is_lowercase())
}

fn is_accent(letter: char) -> bool {
    ('\u{300}'..='\u{36f}').contains(&letter)
}

/// Returns a letter in its small form, without an accent and in its usual width.
fn fold_letter(letter: char) -> impl Iterator<Item = char> {
    let narrow = match letter {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(letter) - 0xfee0).unwrap_or(letter),
        letter => letter,
    };
    narrow.to_lowercase().filter(|letter| !is_accent(*letter)).map(|letter| match letter {
        'à'..='å' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'ć' | 'č' => 'c',
        'è'..='ë' | 'ē' | 'ę' | 'ě' => 'e',
        'ğ' => 'g',
        'ì'..='ï' | 'ı' => 'i',
        'ł' => 'l',
        'ñ' | 'ń' => 'n',
        'ò'..='ö' | 'ø' | 'ő' => 'o',
        'ř' => 'r',
        'ś' | 'ş' | 'š' => 's',
        'ù'..='ü' | 'ů' | 'ű' => 'u',
        'ý' | 'ÿ' => 'y',
        'ź' | 'ż' | 'ž' => 'z',
        letter => letter,
    })
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
            "password_reset_url",
            "session_url",
            "sessionUrl",
            "magic_token_url",
            "secret_uri",
            "token_href",
            "token_in",
            "max_tokens",
            "recovery_codes",
            "backupCodes",
            "BACKUP-CODES",
            "creds",
            "aws_creds",
            "pins",
            "mots_de_passe",
            "clave",
            "mnemonic",
            "seed",
            "seed_phrase",
            "wallet.seed",
            "cardNumber",
            "card_no",
            "cardno",
            "userCardNo",
            "ccNum",
            "cc_number",
            "credit_card",
            "ssn",
            "userSSN",
            "cvv2",
            "PINCode",
            "db_pass",
            "Passwort",
            "senha",
            "nova_senha",
            "contraseña",
            "contrasen\u{303}a",
            "CONTRASEÑA",
            "mot_de_passe",
            "motDePasse",
            "пароль",
            "ＰＡＳＳＷＯＲＤ",
            "Authentication-Info",
            "Proxy-Authentication-Info",
            "authorization_code",
            "verification_code",
            "mfaCode",
            "user_code",
            "device_code",
            "bearer",
            "sas",
            "sas_token",
            "blobSasUri",
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
            "prompt_tokens_details",
            "promptTokensDetails",
            "token_endpoint",
            "token_endpoint_auth_methods_supported",
            "check_session_iframe",
            "token_type",
            "tokenType",
            "tokentype",
            "signature_version",
            "passwordPolicy",
            "password_length",
            "token_count",
            "session_expires_in",
            "passwordChangedAt",
            "has_password",
            "secretName",
            "boarding_passes",
            "seed_count",
            "random_seeding",
            "desenhar",
            "otp_required",
            "token_uri",
            "tokenUrl",
            "authorizationUrl",
            "auth_uri",
            "auth_provider_x509_cert_url",
            "password_changed_on",
            "discardNow",
            "cardNote",
            "accNumber",
            "pincode",
            "bearer_methods_supported",
            "bearerFormat",
            "secretKeyRef",
            "imagePullSecrets",
            "sash",
            "verification_status",
        ] {
            assert!(!is_secret(name), "{name}");
        }
        assert!(is_secret_parameter("code") && is_secret_parameter("pin"));
        assert!(!is_secret_parameter("country_code") && !is_secret_parameter("state"));
    }

    #[test]
    fn labels_are_exact_if_they_name_only_a_secret() {
        for label in [
            "password",
            "DB_PASSWORD",
            "API key",
            "recovery_codes",
            "password_confirmation",
            "API_KEY_2",
        ] {
            assert!(is_exact(label), "{label}");
        }
        for label in
            ["auth-service", "session-store", "How to choose a password", "name", "token_type", ""]
        {
            assert!(!is_exact(label), "{label}");
        }
    }

    #[test]
    fn the_last_word_of_a_name_is_found_in_any_spelling() {
        for (name, expected) in [
            ("value", "value"),
            ("ParameterValue", "Value"),
            ("vars[0][name]", "name"),
            ("header_name", "name"),
            ("KEY", "KEY"),
            ("aé", "aé"),
            ("userPIN", "PIN"),
            ("PINCode", "Code"),
            ("userPINs", "PINs"),
            ("a1", "a"),
            ("", ""),
        ] {
            assert_eq!(last_word(name), expected, "{name}");
        }
    }

    #[test]
    fn numbers_booleans_and_null_are_visible() {
        let bytes = format!("[{}]", ["7"; MIN_KEY_BYTES].join(", "));
        let numbers = |item: &str| format!("[300, {}]", [item; MIN_KEY_BYTES].join(", "));
        for list in [bytes.replace('7', "-12"), bytes.replace("7]", "256]"), numbers("7")] {
            assert!(!is_visible_scalar("private_key", &list, true), "{list}");
        }
        assert!(is_visible_scalar("tokens", &numbers("50256"), true));
        assert!(!is_visible_scalar("seed", &bytes.replace('7', "-12"), true));
        for list in ["[]", "[1, 2.5]", "[[1, null], [true]]"] {
            assert!(is_visible_scalar("tokens", list, true), "{list}");
            assert!(!is_visible_scalar("tokens", list, false), "{list}");
        }
        for list in ["[1, \"a\"]", "[a]", "[1, {}]", "[1, 2", "[1} 2]", &bytes] {
            assert_eq!(is_visible_scalar("tokens", list, true), list == "[1, 2", "{list}");
        }
        assert!(is_visible_scalar("id-token", "write", false));
        assert!(is_visible_scalar("id-token", "\"none\"", true));
        assert!(!is_visible_scalar("id-token", "a", true));
        assert!(!is_visible_scalar("token", "write", true));
        for name in ["tokens", "total_tokens", "num_tokens", "seed"] {
            assert!(is_visible_scalar(name, "512", false), "{name}");
        }
        for name in ["cardNumber", "card_number", "ssn", "cvc", "token", "pin"] {
            assert!(!is_visible_scalar(name, "512", false), "{name}");
        }
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
