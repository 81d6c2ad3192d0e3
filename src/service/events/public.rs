//! Which texts of resources events show. What is not named here is concealed, so that a field that is added
//! tells nothing before somebody has thought of it.

/// The fields that events show, in whatever type they are.
const FIELDS: [&str; 58] = [
    "acl",
    "acme_challenge_cname_target",
    "action",
    "addr",
    "address",
    "allow",
    "authority",
    "backends",
    "bindings",
    "ca_pem",
    "certificate_pem",
    "cidr",
    "cname_target",
    "created_by",
    "deny",
    "description",
    "dns_names",
    "domain",
    "edge_id",
    "error_code",
    "extended_key_usages",
    "format",
    "host",
    "hostport",
    "hostports",
    "id",
    "ips",
    "issuer_common_name",
    "key_usages",
    "labels",
    "last_updated_by",
    "match",
    "match_type",
    "metadata",
    "min_version",
    "msg",
    "name",
    "owner_id",
    "private_key_type",
    "proto",
    "provider",
    "public_url",
    "region",
    "remove",
    "scheme",
    "serial_number",
    "subject_common_name",
    "subject_country",
    "subject_locality",
    "subject_organization",
    "subject_organizational_unit",
    "subject_province",
    "terminate_at",
    "type",
    "upstream_protocol",
    "uri",
    "url",
    "vault_name",
];
/// Those of them that may hold secrets in these types: who has the URL of some receivers may send to them,
/// and policies hold what their authors wrote.
const EXCEPTIONS: [(&str, &str); 3] =
    [("WebhookTarget", "url"), ("OtlpTarget", "url"), ("EndpointRule", "name")];

/// Whether events show the texts of a field.
pub(super) fn is_public(shape: &str, field: &str) -> bool {
    FIELDS.contains(&field) && !EXCEPTIONS.contains(&(shape, field))
}
