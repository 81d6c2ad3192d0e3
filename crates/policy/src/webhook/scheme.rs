//! How webhooks are signed: what is signed, with what, and where the signature stands.

/// One way to sign; a provider may have several.
#[derive(Debug, Clone, Copy)]
pub struct SignatureScheme {
    /// The header with the signature; without one it is in the body, as Mailgun has it.
    pub header: &'static str,
    /// What stands between several signatures.
    pub separator: char,
    /// What stands before a signature.
    pub prefix: &'static str,
    /// What a signature is.
    pub proof: Proof,
    /// How the bytes of a signature are written.
    pub encoding: Encoding,
    /// What the secret is.
    pub key: SecretForm,
    /// Where the time stands.
    pub time: Time,
    /// How far the time may be from now, in seconds.
    pub tolerance: u64,
    /// What is signed, in order.
    pub content: &'static [Piece],
}

/// What a signature is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// HMAC with SHA-1.
    Sha1,
    /// HMAC with SHA-256.
    Sha256,
    /// HMAC with SHA-512.
    Sha512,
    /// ECDSA on P-256 with SHA-256; the secret is the public key.
    Ecdsa,
    /// The secret itself.
    Secret,
}

/// How the bytes of a signature are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As they are.
    Plain,
    /// In hexadecimal digits.
    Hex,
    /// In Base64.
    Base64,
}

/// What the secret is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretForm {
    /// The key, as a text.
    Text,
    /// The key in Base64, perhaps behind `whsec_`.
    Base64,
    /// A name and a password with `::` between them.
    UserPassword,
}

/// Where the time stands that is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Nowhere.
    None,
    /// In a header.
    Header(&'static str),
    /// Beside the signature, behind this prefix.
    Field(&'static str),
}

/// A piece of what is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// The body.
    Body,
    /// The body, or the query of a GET.
    BodyOrQuery,
    /// A text that is always the same.
    Text(&'static str),
    /// The value of a header.
    Header(&'static str),
    /// What stands beside the signature behind this prefix.
    Field(&'static str),
    /// The time, as it is written.
    Time,
    /// The method.
    Method,
    /// The whole URL.
    Url,
    /// The whole URL with some of its escapes decoded (HubSpot).
    HubspotUrl,
    /// The path and the query.
    Path,
    /// The names and values of a form, sorted by name; a body that is none is named by its hash in the
    /// query (Twilio).
    Form,
    /// The URL, the parameters of its query and those of the form (Plivo, version 3).
    UrlAndParameters,
    /// The headers that a header lists, of which one is needed (Contentful).
    ListedHeaders { list: &'static str, needed: &'static str },
    /// Body, environment and time as JSON (Hygraph).
    Envelope,
}

/// A body whose HMAC with SHA-256 is in a header, in hexadecimal digits.
pub const fn hex_hmac(header: &'static str) -> SignatureScheme {
    SignatureScheme {
        header,
        separator: '\0',
        prefix: "",
        proof: Proof::Sha256,
        encoding: Encoding::Hex,
        key: SecretForm::Text,
        time: Time::None,
        tolerance: 300,
        content: &[Piece::Body],
    }
}

/// The same in Base64.
pub const fn base64_hmac(header: &'static str) -> SignatureScheme {
    SignatureScheme { encoding: Encoding::Base64, ..hex_hmac(header) }
}

/// Time and signature in one header, `t=…,v1=…`, over both time and body.
pub const fn timestamped_hmac(
    header: &'static str,
    time: &'static str,
    prefix: &'static str,
) -> SignatureScheme {
    const CONTENT: &[Piece] = &[Piece::Time, Piece::Text("."), Piece::Body];
    SignatureScheme {
        time: Time::Field(time),
        separator: ',',
        prefix,
        content: CONTENT,
        ..hex_hmac(header)
    }
}

/// Time and signature in headers of their own, over `v0:`, time and body, as Slack has it.
pub const fn versioned_hmac(
    header: &'static str,
    time: &'static str,
    prefix: &'static str,
    content: &'static [Piece],
) -> SignatureScheme {
    SignatureScheme { time: Time::Header(time), prefix, content, ..hex_hmac(header) }
}

impl SignatureScheme {
    /// With something before the signature.
    pub const fn with_prefix(self, prefix: &'static str) -> Self {
        Self { prefix, ..self }
    }

    /// With several signatures, and something before each.
    pub const fn with_separator(self, separator: char, prefix: &'static str) -> Self {
        Self { separator, prefix, ..self }
    }

    /// With another kind of signature.
    pub const fn with_proof(self, proof: Proof) -> Self {
        Self { proof, ..self }
    }

    /// With another kind of secret.
    pub const fn with_secret_form(self, key: SecretForm) -> Self {
        Self { key, ..self }
    }

    /// With other content.
    pub const fn with_content(self, content: &'static [Piece]) -> Self {
        Self { content, ..self }
    }

    /// With the time in a header.
    pub const fn with_time_header(self, header: &'static str) -> Self {
        Self { time: Time::Header(header), ..self }
    }

    /// With another tolerance, in seconds.
    pub const fn with_tolerance(self, tolerance: u64) -> Self {
        Self { tolerance, ..self }
    }
}
