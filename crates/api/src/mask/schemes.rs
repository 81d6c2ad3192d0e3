//! Schemes of HTTP authentication.

/// How a value begins that is made of credentials (the registry of HTTP authentication schemes, and what
/// others made up).
const SCHEMES: [&str; 26] = [
    "apikey",
    "api-key",
    "aws",
    "aws4-hmac-sha256",
    "basic",
    "bearer",
    "digest",
    "dpop",
    "gnap",
    "googlelogin",
    "hawk",
    "hmac",
    "hoba",
    "jwt",
    "mac",
    "negotiate",
    "ntlm",
    "oauth",
    "privatetoken",
    "scram-sha-1",
    "scram-sha-256",
    "sharedkey",
    "sharedkeylite",
    "ssws",
    "token",
    "vapid",
];

/// Returns true for a word that credentials follow.
pub(super) fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|known| word.eq_ignore_ascii_case(known))
}
