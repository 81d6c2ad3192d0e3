//! Identifiers and tokens (remote API sheet, section 4).
//!
//! An identifier is a prefix that names its kind, an underscore and 27 characters of base62: four
//! bytes of seconds since [`EPOCH`], then sixteen bytes that grow within a second, so that the order
//! of identifiers is the order of creation. A token is the 27 characters of its owner's identifier,
//! an underscore and 21 random characters.

use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use super::{Origin, Timestamp};

/// Seconds between the Unix epoch and the first moment an identifier can name.
pub const EPOCH: u64 = 1_400_000_000;

/// Characters of an identifier after its prefix and underscore.
const ID_CHARS: usize = 27;
/// Characters of a token after its owner's identifier and underscore.
const SECRET_CHARS: usize = 21;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

macro_rules! prefixes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal),+ $(,)?) => {$(
        $(#[doc = $doc])+
        pub const $name: &str = $text;
    )+};
}

/// The text in front of an identifier's underscore.
pub mod prefix {
    prefixes! {
        /// API key.
        API_KEY = "ak",
        /// User.
        USER = "usr",
        /// Bot user.
        BOT_USER = "bot",
        /// Vault.
        VAULT = "vault",
        /// Secret in a vault.
        VAULT_SECRET = "secret",
        /// IP policy.
        IP_POLICY = "ipp",
        /// Rule of an IP policy.
        IP_POLICY_RULE = "ipr",
        /// IP restriction.
        IP_RESTRICTION = "ipx",
        /// Certificate authority.
        CERTIFICATE_AUTHORITY = "ca",
        /// Reserved domain.
        RESERVED_DOMAIN = "rd",
        /// Reserved address.
        RESERVED_ADDR = "ra",
        /// TLS certificate.
        TLS_CERTIFICATE = "cert",
        /// Private key of a TLS certificate; never leaves the service.
        TLS_CERTIFICATE_KEY = "certkey",
        /// Name whose certificate is obtained by ACME; never leaves the service.
        MANAGED_NAME = "acme",
        /// Tunnel group backend.
        TUNNEL_GROUP = "bkdtg",
        /// Failover backend.
        FAILOVER = "bkdfo",
        /// HTTP response backend.
        HTTP_RESPONSE = "bkdhr",
        /// Weighted backend.
        WEIGHTED = "bkdwd",
        /// Static backend.
        STATIC = "bkdsc",
        /// HTTPS edge.
        HTTPS_EDGE = "edghts",
        /// Route of an HTTPS edge.
        HTTPS_ROUTE = "edghtsrt",
        /// TCP edge.
        TCP_EDGE = "edgtcp",
        /// TLS edge.
        TLS_EDGE = "edgtls",
        /// Credential of an agent.
        CREDENTIAL = "cr",
        /// Session of an agent.
        TUNNEL_SESSION = "ts",
        /// Tunnel.
        TUNNEL = "tn",
        /// Endpoint.
        ENDPOINT = "ep",
        /// Node of a cluster.
        NODE = "node",
        /// Audit event.
        AUDIT_EVENT = "aev",
        /// Event destination.
        EVENT_DESTINATION = "ed",
        /// Secret of an event destination; never leaves the service.
        EVENT_DESTINATION_SECRET = "edsecret",
        /// Event subscription.
        EVENT_SUBSCRIPTION = "esb",
        /// Event, as it is sent.
        EVENT = "ev",
        /// Visitor who has logged in.
        APPLICATION_USER = "au",
        /// Session of such a visitor.
        APPLICATION_SESSION = "as",
        /// One operation, as named in an error.
        OPERATION = "op",
        /// Request of a visitor.
        REQUEST = "req",
    }
}

/// Makes identifiers that grow, however fast they are asked for and wherever the clock jumps.
#[derive(Debug, Default)]
pub struct Ids {
    origin: Origin,
    latest: Mutex<LatestId>,
}

/// How many random bytes an identifier has.
const RANDOM_BYTES: usize = 12;
/// How many the system is asked for at once: each request has an identifier, and to ask for its bytes
/// alone is a system call a request.
const SPARE_BYTES: usize = 64 * RANDOM_BYTES;

/// The second and the payload of the identifier that was made last.
#[derive(Debug, Default)]
struct LatestId {
    last: (u32, u128),
    /// Random bytes for the next ones, taken from the end.
    spare: Vec<u8>,
}

impl LatestId {
    /// Random bytes that were not used before.
    fn next_random(&mut self, origin: &Origin) -> Result<[u8; RANDOM_BYTES], getrandom::Error> {
        let mut random = [0; RANDOM_BYTES];
        if origin.is_seeded() {
            origin.fill_random(&mut random)?;
            return Ok(random);
        }
        if self.spare.is_empty() {
            let mut spare = vec![0; SPARE_BYTES];
            origin.fill_random(&mut spare)?;
            self.spare = spare;
        }
        let begin = self.spare.len() - RANDOM_BYTES;
        random.copy_from_slice(&self.spare[begin..]);
        self.spare.truncate(begin);
        Ok(random)
    }
}

impl Ids {
    /// Makes identifiers of the times and bytes of this origin.
    pub fn from_origin(origin: Origin) -> Self {
        Self { origin, latest: Mutex::default() }
    }

    /// What time it is where identifiers are made.
    pub fn now(&self) -> Timestamp {
        self.origin.timestamp()
    }

    /// Makes identifiers that are larger than this one too, as after a clock was set back.
    pub fn continue_after(&self, id: &str) {
        if let Some(latest) = id.rsplit('_').next().and_then(decode_base62) {
            let mut state = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            state.last = latest.max(state.last);
        }
    }

    /// The largest identifier so far, of no kind; [`Ids::continue_after`] takes it.
    pub fn latest_id(&self) -> String {
        let state = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        encode_base62(state.last.0, state.last.1)
    }

    /// A new identifier of the kind that `prefix` names.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn next(&self, prefix: &str) -> Result<String, getrandom::Error> {
        let now = self.origin.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = u32::try_from(now.as_secs().saturating_sub(EPOCH)).unwrap_or(u32::MAX);
        let mut state = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let random = state.next_random(&self.origin)?;
        // The fraction of the second leads, so that a restart within a second keeps the order.
        let mut payload = u128::from(now.subsec_nanos()) << 96;
        payload |= random.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte));
        let last = &mut state.last;
        if (seconds, payload) <= *last {
            let (payload, full) = last.1.overflowing_add(1);
            *last = (last.0.saturating_add(full.into()), payload);
        } else {
            *last = (seconds, payload);
        }
        Ok(format!("{prefix}_{}", encode_base62(last.0, last.1)))
    }

    /// A new token for the owner of `id`.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn new_token(&self, id: &str) -> Result<String, getrandom::Error> {
        let rest = id.rsplit('_').next().unwrap_or(id);
        let mut random = [0; SECRET_CHARS * 2];
        self.origin.fill_random(&mut random)?;
        // 16 bits on 62 characters: the bias is below one part in a thousand.
        let mut characters =
            random.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        let first = characters.next().map(|number| ALPHABET[usize::from(number) % 10] as char);
        let others = characters.map(|number| ALPHABET[usize::from(number) % 62] as char);
        Ok(format!("{rest}_{}", first.into_iter().chain(others).collect::<String>()))
    }
}

/// The identifier of something that belongs to the moment of another, and that this payload tells from others.
pub fn sibling_id(prefix: &str, other: &str, payload: u128) -> String {
    let moment = other.rsplit('_').next().and_then(decode_base62).map_or(0, |(seconds, _)| seconds);
    format!("{prefix}_{}", encode_base62(moment, payload))
}

/// Splits a token into the characters of its owner's identifier and its secret part; `None` when
/// it does not have the form of a token.
pub fn split_token(token: &str) -> Option<(&str, &str)> {
    let (owner, secret) = token.split_once('_')?;
    let well_formed = is_base62(owner, ID_CHARS)
        && is_base62(secret, SECRET_CHARS)
        && secret.starts_with(|first: char| first.is_ascii_digit());
    well_formed.then_some((owner, secret))
}

/// True when `text` has the form of an identifier, of whatever kind.
pub fn is_id(text: &str) -> bool {
    text.split_once('_').is_some_and(|(prefix, rest)| {
        prefix.bytes().all(|byte| byte.is_ascii_lowercase()) && is_base62(rest, ID_CHARS)
    })
}

/// True when `text` has the form of an identifier with this prefix.
pub fn has_prefix(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('_') && rest.len() > 1)
}

fn is_base62(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// 20 bytes as 27 characters: long division by 62 over 32-bit limbs.
fn encode_base62(seconds: u32, payload: u128) -> String {
    let limb = |shift: u32| u32::try_from(payload >> shift & 0xffff_ffff).unwrap_or(0);
    let mut limbs = [seconds, limb(96), limb(64), limb(32), limb(0)];
    let mut text = [b'0'; ID_CHARS];
    for character in text.iter_mut().rev() {
        let mut rest = 0u64;
        for limb in &mut limbs {
            let value = rest << 32 | u64::from(*limb);
            *limb = (value / 62) as u32;
            rest = value % 62;
        }
        *character = ALPHABET[rest as usize];
    }
    text.iter().map(|byte| *byte as char).collect()
}

/// What [`encode_base62`] made 27 characters of; `None` for anything else.
fn decode_base62(text: &str) -> Option<(u32, u128)> {
    if !is_base62(text, ID_CHARS) {
        return None;
    }
    let (mut seconds, mut payload) = (0u32, 0u128);
    for byte in text.bytes() {
        let digit = ALPHABET.iter().position(|known| *known == byte)? as u128;
        // 128 bits times 62 and a digit: what leaves the payload goes to the seconds.
        let low = (payload & u128::from(u64::MAX)) * 62 + digit;
        let high = (payload >> 64) * 62 + (low >> 64);
        payload = high << 64 | low & u128::from(u64::MAX);
        let carried = u32::try_from(high >> 64).ok()?;
        seconds = seconds.checked_mul(62)?.checked_add(carried)?;
    }
    Some((seconds, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_of_one_maker_grow() {
        let ids = Ids::default();

        let made: Vec<String> =
            (0..10_000).map(|_| ids.next(prefix::API_KEY).unwrap_or_default()).collect();

        assert!(made.is_sorted_by(|earlier, later| earlier < later));
        assert!(made.iter().all(|id| id.len() == "ak_".len() + ID_CHARS));
    }

    #[test]
    fn the_largest_identifier_fills_its_characters() {
        assert_eq!(encode_base62(u32::MAX, u128::MAX), "aWgEPTl1tmebfsQzFP4bxwgy80V");
        assert_eq!(encode_base62(0, 0), "0".repeat(ID_CHARS));
    }

    #[test]
    fn decoding_undoes_encoding() {
        for whole in [(0, 0), (0, 61), (7, 1 << 96), (u32::MAX, u128::MAX), (1, u128::MAX - 62)] {
            assert_eq!(decode_base62(&encode_base62(whole.0, whole.1)), Some(whole));
        }
        for wrong in ["", "0", "zzzzzzzzzzzzzzzzzzzzzzzzzzz", "00000000000000000000000000-"] {
            assert_eq!(decode_base62(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn identifiers_continue_after_one_of_the_future() {
        let ids = Ids::default();
        let future = format!("ak_{}", encode_base62(u32::MAX - 1, u128::MAX));

        ids.continue_after("ak_nonsense");
        let now = ids.next(prefix::API_KEY).unwrap_or_default();
        ids.continue_after(&future);
        ids.continue_after(&now);
        let next = ids.next(prefix::API_KEY).unwrap_or_default();

        assert!(now < future && future < next, "{now} {future} {next}");
    }

    #[test]
    fn a_token_carries_its_owner() {
        let token = Ids::default().new_token("ak_0ujtsYcgvSTl8PAuAdqWYSMnLOv").unwrap_or_default();

        let (owner, secret) = split_token(&token).unwrap_or_default();

        assert_eq!(owner, "0ujtsYcgvSTl8PAuAdqWYSMnLOv");
        assert_eq!(secret.len(), SECRET_CHARS);
        assert_eq!(split_token("0ujtsYcgvSTl8PAuAdqWYSMnLOv_short"), None);
        assert_eq!(split_token("nonsense"), None);
    }
}
