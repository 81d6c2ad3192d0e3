//! Functions that compute digests and checksums.

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use ginnel_base::hex;

use super::super::value;
use super::Argument::{Any, Text};
use super::{
    Arguments, Function, FunctionResult, argument_at, bytes_of, function_error, global_function,
    member_function, some_text, text_argument,
};

mod checksum;

use self::checksum::{crc64, xxhash64};

pub(super) const FUNCTIONS: &[Function] = &[
    global_function("hash.md5", &[Any], md5),
    global_function("hash.md5", &[Any, Text], md5),
    member_function("md5", &[Any], md5),
    member_function("md5", &[Any, Text], md5),
    global_function("hash.sha1", &[Any], sha1),
    global_function("hash.sha1", &[Any, Text], sha1),
    member_function("sha1", &[Any], sha1),
    member_function("sha1", &[Any, Text], sha1),
    global_function("hash.sha256", &[Any], sha256),
    global_function("hash.sha256", &[Any, Text], sha256),
    member_function("sha256", &[Any], sha256),
    member_function("sha256", &[Any, Text], sha256),
    global_function("hash.sha512", &[Any], sha512),
    global_function("hash.sha512", &[Any, Text], sha512),
    member_function("sha512", &[Any], sha512),
    member_function("sha512", &[Any, Text], sha512),
    global_function("hash.crc32", &[Any], checksum_32),
    global_function("hash.crc32", &[Any, Text], checksum_32),
    member_function("crc32", &[Any], checksum_32),
    member_function("crc32", &[Any, Text], checksum_32),
    global_function("hash.crc64", &[Any], checksum_64),
    global_function("hash.crc64", &[Any, Text], checksum_64),
    member_function("crc64", &[Any], checksum_64),
    member_function("crc64", &[Any, Text], checksum_64),
    global_function("hash.xxhash64", &[Any], xxhash),
    global_function("hash.xxhash64", &[Any, Text], xxhash),
    member_function("xxhash64", &[Any], xxhash),
    member_function("xxhash64", &[Any, Text], xxhash),
];

fn md5<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    hash_argument(&arguments, |bytes| Md5::digest(bytes).to_vec())
}

fn sha1<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    hash_argument(&arguments, |bytes| Sha1::digest(bytes).to_vec())
}

fn sha256<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    hash_argument(&arguments, |bytes| Sha256::digest(bytes).to_vec())
}

fn sha512<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    hash_argument(&arguments, |bytes| Sha512::digest(bytes).to_vec())
}

fn checksum_32<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    hash_argument(&arguments, |bytes| crc32fast::hash(bytes).to_be_bytes().to_vec())
}

fn checksum_64<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    hash_argument(&arguments, |bytes| crc64(bytes).to_be_bytes().to_vec())
}

fn xxhash<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    hash_argument(&arguments, |bytes| xxhash64(bytes).to_be_bytes().to_vec())
}

/// The digest of the first argument in the notation that the second one names, or in hex.
fn hash_argument<'b, 'v>(
    arguments: &Arguments<'b, 'v>,
    digest: fn(&[u8]) -> Vec<u8>,
) -> FunctionResult<'b, 'v> {
    let digest = digest(bytes_of(argument_at(arguments, 0)?)?);
    let notation = if arguments.len() == 2 { text_argument(arguments, 1)? } else { "hex" };
    match notation {
        "hex" => some_text(hex(&digest)),
        "base64" => some_text(value::to_base64(&digest)),
        other => Err(function_error("hash", format!("there is no notation {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{evaluate, result};
    use serde_json::json;

    #[test]
    fn digests_are_those_of_the_standards() {
        assert_eq!(result("hash.md5('abc')"), json!("900150983cd24fb0d6963f7d28e17f72"));
        assert_eq!(result("'abc'.sha1()"), json!("a9993e364706816aba3e25717850c26c9cd0d89d"));
        assert_eq!(
            result("hash.sha256('abc', 'base64')"),
            json!("ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=")
        );
        assert_eq!(result("'abc'.sha512('hex').substring(0, 16)"), json!("ddaf35a193617aba"));
    }

    #[test]
    fn checksums_are_written_like_digests() {
        assert_eq!(result("hash.crc32('123456789')"), json!("cbf43926"));
        assert_eq!(result("'123456789'.crc64()"), json!("b90956c775a41001"));
        assert_eq!(result("hash.xxhash64('')"), json!("ef46db3751d8e999"));
    }

    #[test]
    fn another_notation_is_an_error() {
        assert!(evaluate("'abc'.md5('octal')", json!({})).is_err());
    }
}
