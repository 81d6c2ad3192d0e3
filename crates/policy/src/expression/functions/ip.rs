//! Functions of addresses.

use std::net::IpAddr;

use super::Argument::{List, Text};
use super::text_argument;
use super::{
    Arguments, Function, FunctionResult, argument_at, global_function, member_function,
    require_iterable, some_truth, text_of,
};
use crate::cidr::{Cidr, is_private};

pub(super) const FUNCTIONS: &[Function] = &[
    global_function("inCidrRange", &[Text, Text], in_cidr_range),
    global_function("inCidrRanges", &[Text, List], in_cidr_ranges),
    member_function("isPrivateIp", &[Text], is_private_ip),
];

/// A range that is none holds no address.
fn in_cidr_range<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let (address, range) = (text_argument(&arguments, 0)?, text_argument(&arguments, 1)?);
    some_truth(range_contains(range, address))
}

fn in_cidr_ranges<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let address = text_argument(&arguments, 0)?;
    let mut ranges = require_iterable(argument_at(&arguments, 1)?)?.iter();
    while let Some(range) = ranges.next() {
        if text_of(range).is_ok_and(|range| range_contains(range, address)) {
            return some_truth(true);
        }
    }
    some_truth(false)
}

fn is_private_ip<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let address = text_argument(&arguments, 0)?.parse::<IpAddr>();
    some_truth(address.is_ok_and(is_private))
}

fn range_contains(range: &str, address: &str) -> bool {
    match (range.parse::<Cidr>(), address.parse()) {
        (Ok(range), Ok(address)) => range.contains(address),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::result;
    use serde_json::json;

    #[test]
    fn an_address_is_in_its_ranges() {
        assert_eq!(result("inCidrRange('10.1.2.3', '10.0.0.0/8')"), json!(true));
        assert_eq!(result("inCidrRange('11.1.2.3', '10.0.0.0/8')"), json!(false));
        assert_eq!(result("inCidrRanges('::1', ['nonsense', 3, '::/64'])"), json!(true));
    }

    #[test]
    fn a_bad_range_holds_nothing() {
        assert_eq!(result("inCidrRange('10.1.2.3', '10.0.0.0/99')"), json!(false));
        assert_eq!(result("inCidrRange('somewhere', '0.0.0.0/0')"), json!(false));
    }

    #[test]
    fn private_addresses_are_known() {
        assert_eq!(result("'192.168.0.1'.isPrivateIp()"), json!(true));
        assert_eq!(result("'fd00::1'.isPrivateIp()"), json!(true));
        assert_eq!(result("'8.8.8.8'.isPrivateIp()"), json!(false));
    }
}
