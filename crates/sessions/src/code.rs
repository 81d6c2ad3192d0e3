//! The numbers that refusals carry (remote API sheet, section 2), each with its HTTP status.

use super::store::StorageFault;

/// The number of a refusal and the status that goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode {
    /// The number after the prefix, such as 218.
    pub number: u16,
    /// The HTTP status.
    pub status: u16,
}

macro_rules! codes {
    ($( $name:ident = $number:literal, $status:literal, $doc:literal; )+) => {
        $(
            #[doc = $doc]
            pub const $name: ErrorCode = ErrorCode { number: $number, status: $status };
        )+

        /// Every code that the service itself gives; policies add their own.
        pub const ALL: &[ErrorCode] = &[$($name),+];
    };
}

codes! {
    NO_CREDENTIALS = 200, 403, "No `Authorization` header.";
    NOT_BEARER = 201, 403, "The `Authorization` header holds no bearer token.";
    MALFORMED_TOKEN = 202, 403, "The token does not have the form of a token.";
    UNKNOWN_TOKEN = 203, 403, "No key has this token, or its owner is not active.";
    AUTHTOKEN_AS_KEY = 206, 400, "The authtoken of an agent was used as an API key.";
    ID_AS_KEY = 208, 403, "The identifier of an API key was used in place of its token.";
    OTHER_CONTENT_TYPE = 210, 415, "The body is something other than JSON.";
    UNEXPECTED_BODY = 211, 400, "A body where none is allowed.";
    BODY_CUT_SHORT = 212, 400, "The body ended early or took too long.";
    BODY_TOO_LARGE = 212, 413, "The body is over its limit.";
    NOT_AN_OBJECT = 213, 400, "The body is not one JSON object.";
    UNKNOWN_FIELD = 214, 400, "A field that the operation does not know.";
    INVALID_VALUE = 215, 400, "A wrong type, or a wrong value without a code of its own.";
    NO_CONTENT_TYPE = 216, 400, "A body without a content type.";
    AUTHORITY_IN_USE = 215, 409, "Something refers to the certificate authority.";
    UNSUPPORTED_VERSION = 217, 400, "A version other than 2.";
    RATE_LIMITED = 226, 429, "Too many requests.";
    WRONG_PREFIX = 227, 400, "An identifier of another kind; one kind is possible.";
    UNDECODABLE_QUERY = 230, 400, "The query string cannot be decoded.";
    UNKNOWN_QUERY = 231, 400, "A query parameter that the operation does not know.";
    REPEATED_QUERY = 232, 400, "A query parameter given twice.";
    LIMIT_OUT_OF_RANGE = 233, 400, "A page size out of range.";
    WRONG_PREFIXES = 243, 400, "An identifier of another kind; several kinds are possible.";
    LIMIT_NOT_A_NUMBER = 244, 400, "A page size that is not a number.";
    ENDPOINT_CHANGED = 215, 409, "Another call changed the cloud endpoint at the same time.";
    ENDPOINT_ONLINE = 334, 409, "Another endpoint has the URL.";
    ACL_ENTRY = 600, 400, "An entry of an access list that has no known form.";
    KEY_DESCRIPTION = 604, 400, "The description of a key or credential is too long.";
    KEY_METADATA = 605, 400, "The metadata of a key or credential is too long.";
    KEY_UNCHANGED = 606, 400, "A change of a key or credential that changes nothing.";
    OWNER_NEEDS_ADMIN = 630, 403, "Only an admin may name another owner.";
    OWNER_UNKNOWN = 634, 400, "The owner does not exist.";
    OWNER_INACTIVE = 636, 400, "The owner is not active.";
    AUDIT_NEEDS_ADMIN = 9730, 403, "Only an admin may read audit events.";
    BACKUP_NEEDS_ADMIN = 9731, 403, "Only an admin may back up the database.";
    BACKUP_UNDER_WAY = 9732, 409, "Another copy of the database is under way.";
    BACKUP_ELSEWHERE = 9733, 400, "The database is on a server, which has its own tools for backups.";
    EVENTS_NEED_ADMIN = 9760, 403, "Only an admin may see and change event destinations and subscriptions.";
    DESTINATION_IN_USE = 9761, 409, "An event subscription names the event destination.";
    NOT_OFFERED = 9745, 501, "The vendor's API has this resource, and this one has not.";
    UNEXPECTED = 722, 500, "An unexpected failure.";
    STORE_LOCKED = 9720, 503, "Another program has locked the database.";
    STORE_FULL = 9721, 503, "No space is left for the database.";
    STORE_IO = 9722, 503, "The database file cannot be read or written.";
    STORE_READ_ONLY = 9723, 503, "The database file is read-only.";
    STORE_DETACHED = 9724, 503, "The database file was deleted, replaced, moved or cut short.";
    STORE_DAMAGED = 9725, 503, "The database is damaged.";
    STORE_TIMEOUT = 9726, 503, "The database took too long.";
    STORE_CLOSED = 9727, 503, "The database is being closed.";
    STORE_UNREACHABLE = 9728, 503, "The database server cannot be reached.";
    NODE_UNREACHABLE = 9729, 503, "The node that has the session cannot be reached.";
    DOMAIN_OWN_DUPLICATE = 413, 409, "The owner has reserved the domain already.";
    DOMAIN_DUPLICATE = 414, 409, "Another owner has reserved the domain.";
    DOMAIN_CONFLICT = 417, 409, "A domain above or below belongs to another owner.";
    DOMAIN_ONLINE = 430, 409, "An edge or agent of another owner uses the domain.";
    DOMAIN_NEEDS_OWNER = 630, 403, "Only its owner or an admin may change a reserved domain.";
    DOMAIN_IN_USE = 215, 409, "An edge uses the reserved domain.";
    ADDR_DESCRIPTION = 504, 400, "The description of a reserved address is too long.";
    ADDR_METADATA = 505, 400, "The metadata of a reserved address is too long.";
    ADDR_UNCHANGED = 506, 400, "A change of a reserved address that changes nothing.";
    ADDR_DUPLICATE = 9740, 409, "The port is reserved already.";
    ADDR_ONLINE = 9741, 409, "An edge, an agent of another owner or another program uses the port.";
    ADDR_NEEDS_OWNER = 630, 403, "Only its owner or an admin may change a reserved address.";
    ADDR_IN_USE = 215, 409, "An edge uses the reserved address.";
    CERTIFICATE_IN_USE = 215, 409, "A reserved domain uses the certificate.";
    CERTIFICATE_MISMATCH = 1923, 400, "The key is not that of the certificate.";
    STOP_REFUSED = 804, 400, "The agent refuses to stop.";
    RESTART_REFUSED = 805, 400, "The agent refuses to restart.";
    UPDATE_REFUSED = 806, 400, "The agent refuses to update itself.";
    POLICY_UNCHANGED = 1400, 400, "A change of an IP policy that changes nothing.";
    POLICY_IN_USE = 1420, 409, "An IP restriction uses the IP policy.";
    RESTRICTION_NEEDS_ADMIN = 9742, 403, "Only an admin may change IP restrictions.";
    ADDRESS_RESTRICTED = 9743, 403, "An IP restriction does not allow the address of the caller.";
    RESTRICTION_LOCKOUT = 9744, 409, "A change after which its caller could not use the API.";
    RULE_UNCHANGED = 1401, 400, "A change of an IP policy rule that changes nothing.";
    RULE_POLICY_UNKNOWN = 1402, 400, "The IP policy of a rule does not exist.";
    CIDR_MISSING = 1405, 400, "A rule without a network.";
    CIDR_INVALID = 1406, 400, "Not a network in CIDR notation.";
    CIDR_DUPLICATE = 1408, 409, "The IP policy has a rule for this network.";
    CIDR_HOST_BITS = 1409, 400, "Bits are set outside the mask of the network.";
    RULES_TOO_MANY = 1411, 400, "The IP policy is full.";
    CIDR_NO_MASK = 1413, 400, "A network without a mask.";
    RULE_DESCRIPTION = 1421, 400, "The description of a rule is too long.";
    RULE_ACTION = 1422, 400, "A rule neither allows nor denies.";
    USER_AGENT_EXPRESSION = 2090, 400, "An expression of a user agent filter is invalid.";
    POLICY_IP_POLICY = 2216, 400, "A traffic policy names an IP policy that does not exist.";
    BOT_NAME = 4109, 400, "A bot user without a name.";
    BOT_NEEDS_ADMIN = 4111, 403, "Only an admin may change bot users.";
    NOTHING_TO_RELOAD = 4180, 400, "The service reads no configuration that could be reloaded.";
    CONFIGURATION_INVALID = 4181, 400, "The configuration is wrong; nothing has changed.";
    RELOAD_NEEDS_ADMIN = 4182, 403, "Only an admin may reload the configuration.";
    CLOCK_NEEDS_ADMIN = 4183, 403, "Only an admin may confirm the clock.";
    BOT_NAME_TAKEN = 4112, 409, "Another bot user has this name.";
    VAULT_NAME_TAKEN = 215, 409, "Another vault has this name.";
    SECRET_NAME_TAKEN = 215, 409, "Another secret of the vault has this name.";
    SECRET_IN_USE = 215, 409, "A traffic policy reads the secret.";
    POLICY_SECRET = 2200, 400, "A traffic policy reads a secret that does not exist.";
    VAULT_KEY = 9750, 503, "The service has no key for secrets, or another one than the database needs.";
    BACKEND_UNKNOWN = 6501, 400, "A backend that does not exist.";
    BACKEND_IN_USE = 6502, 409, "Something refers to the backend.";
    BACKEND_DESCRIPTION = 6503, 400, "The description of a backend is too long.";
    BACKEND_METADATA = 6504, 400, "The metadata of a backend is too long.";
    ADDRESS_MISSING = 6505, 400, "A static backend without an address.";
    ADDRESS_INVALID = 6506, 400, "The address of a static backend is not `host:port`.";
    ADDRESS_PORT = 6507, 400, "The port of a static backend is not valid.";
    LABELS_TOO_MANY = 6508, 400, "Too many labels.";
    LABEL_KEY = 6509, 400, "The length of a label's key is out of range.";
    LABEL_VALUE = 6510, 400, "The length of a label's value is out of range.";
    WEIGHTED_TOO_MANY = 6511, 400, "A weighted backend with too many children.";
    WEIGHT = 6512, 400, "A weight out of range.";
    RESPONSE_BODY = 6516, 400, "The body of an HTTP response backend is too long.";
    RESPONSE_STATUS = 6517, 400, "Not a status of a response.";
    WEIGHTED_CHILD = 6524, 400, "A kind of backend that a weighted backend cannot hold.";
    BACKEND_CYCLE = 6525, 400, "Failover backends that contain themselves or nest too deeply.";
    LABEL_EQUALS_SIGN = 6531, 400, "An equals sign in a label.";
    RESTRICTION_POLICY_UNKNOWN = 7007, 400, "An IP restriction names an unknown IP policy.";
    RESTRICTION_EMPTY = 7025, 400, "An IP restriction without IP policies.";
    AUTHORITY_UNKNOWN = 7072, 400, "A mutual TLS module names an unknown certificate authority.";
    EDGE_DESCRIPTION = 7073, 400, "The description of an edge or route is too long.";
    EDGE_METADATA = 7074, 400, "The metadata of an edge or route is too long.";
    HOSTPORT_INVALID = 7104, 400, "Not `host:port`.";
    EDGE_ID_DIFFERS = 7110, 400, "The identifier in the body is not the one in the path.";
    HOSTPORT_PORT = 7112, 400, "The port of an edge is not valid.";
    HOSTPORT_NOT_RESERVED = 7117, 400, "The host of an edge is not reserved.";
    HOSTPORT_OF_ANOTHER = 7118, 400, "Another owner has reserved the host of an edge.";
    HOSTPORT_TAKEN = 7122, 409, "Another edge has this host and port.";
    HOSTPORT_ONLINE = 7132, 409, "An agent's endpoint has this host and port.";
    MATCH_MISSING = 7123, 400, "A route without a path.";
    MATCH_DUPLICATE = 7126, 409, "Another route of the edge has this path.";
    MATCH_TYPE = 7130, 400, "A route matches neither exactly nor by prefix.";
    MATCH_SLASH = 7131, 400, "The path of a route does not start with a slash.";
    MATCH_TOO_LONG = 7135, 400, "The path of a route is too long.";
}

impl ErrorCode {
    /// A code of a module or its policy; these are all answered with 400.
    pub const fn bad_request(number: u16) -> Self {
        Self { number, status: 400 }
    }
}

/// What is answered when the storage fails, and after how many seconds it may be better.
pub fn of_storage(fault: StorageFault) -> (ErrorCode, Option<u64>) {
    match fault {
        StorageFault::Locked => (STORE_LOCKED, Some(5)),
        StorageFault::Full => (STORE_FULL, Some(30)),
        StorageFault::Io => (STORE_IO, Some(30)),
        StorageFault::ReadOnly => (STORE_READ_ONLY, None),
        StorageFault::Detached => (STORE_DETACHED, None),
        StorageFault::Damaged => (STORE_DAMAGED, None),
        StorageFault::Timeout => (STORE_TIMEOUT, Some(5)),
        StorageFault::Unreachable | StorageFault::Uncertain => (STORE_UNREACHABLE, Some(2)),
        StorageFault::Closed => (STORE_CLOSED, Some(1)),
    }
}

/// What is answered when a text of a resource is over its limit (table of length codes).
pub fn too_long(resource: &str, field: &str) -> ErrorCode {
    match (resource.split('.').next().unwrap_or_default(), field) {
        ("api_keys" | "credentials", "description") => KEY_DESCRIPTION,
        ("api_keys" | "credentials", "metadata") => KEY_METADATA,
        ("ip_policy_rules", "description") => RULE_DESCRIPTION,
        ("reserved_addrs", "description") => ADDR_DESCRIPTION,
        ("reserved_addrs", "metadata") => ADDR_METADATA,
        ("backends", "description") => BACKEND_DESCRIPTION,
        ("backends", "metadata") => BACKEND_METADATA,
        ("edges", "description") => EDGE_DESCRIPTION,
        ("edges", "metadata") => EDGE_METADATA,
        _ => INVALID_VALUE,
    }
}

/// What is answered when a required field is missing.
pub fn missing_field(resource: &str, field: &str) -> ErrorCode {
    match (resource, field) {
        ("ip_policy_rules", "cidr") => CIDR_MISSING,
        ("ip_policy_rules", "action") => RULE_ACTION,
        ("bot_users" | "service_users", "name") => BOT_NAME,
        ("backends.static", "address") => ADDRESS_MISSING,
        ("edges.https.routes", "match") => MATCH_MISSING,
        ("edges.https.routes", "match_type") => MATCH_TYPE,
        (_, "ip_policy_ids") => RESTRICTION_EMPTY,
        _ => INVALID_VALUE,
    }
}

/// What is answered to a `PATCH` that changes nothing, where that is refused.
pub fn unchanged_patch(resource: &str) -> Option<ErrorCode> {
    match resource {
        "api_keys" | "credentials" => Some(KEY_UNCHANGED),
        "ip_policies" => Some(POLICY_UNCHANGED),
        "ip_policy_rules" => Some(RULE_UNCHANGED),
        "reserved_addrs" => Some(ADDR_UNCHANGED),
        _ => None,
    }
}

/// What is answered when the identifier in a body is not the one in the path.
pub fn id_differs(resource: &str) -> ErrorCode {
    if resource.starts_with("edges.") { EDGE_ID_DIFFERS } else { INVALID_VALUE }
}
