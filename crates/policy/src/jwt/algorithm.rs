//! How tokens are signed.

/// How a token is signed; there is no `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the registered name of an algorithm")]
pub enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// Its registered name.
    pub fn name(self) -> &'static str {
        ALGORITHMS.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

/// All of them, by their registered names.
pub(crate) const ALGORITHMS: &[(&str, Algorithm)] = &[
    ("HS256", Algorithm::Hs256),
    ("HS384", Algorithm::Hs384),
    ("HS512", Algorithm::Hs512),
    ("RS256", Algorithm::Rs256),
    ("RS384", Algorithm::Rs384),
    ("RS512", Algorithm::Rs512),
    ("PS256", Algorithm::Ps256),
    ("PS384", Algorithm::Ps384),
    ("PS512", Algorithm::Ps512),
    ("ES256", Algorithm::Es256),
    ("ES384", Algorithm::Es384),
    ("EdDSA", Algorithm::EdDsa),
];
