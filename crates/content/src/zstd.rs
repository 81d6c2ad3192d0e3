//! The content coding `zstd` (RFC 8878).

use ginnel_http1::coding::DecodedEnd;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window of a frame. RFC 9659, section 3, allows no larger one for a content coding.
const MAX_WINDOW_BYTES: u64 = 8 << 20;
/// An empty last block, and room for a checksum: it ends a frame that was cut off.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];
/// Bytes that are decoded before they are collected.
const STEP_BYTES: usize = 128 << 10;

/// Decodes all frames of a body, up to `max` bytes. Skippable frames have no content.
///
/// A block is decoded as a whole, so a frame that was cut off within its first block has no readable content.
pub(crate) fn decode_zstd(body: &[u8], max: usize) -> (Vec<u8>, DecodedEnd) {
    let mut decoded = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(MAX_WINDOW_BYTES);
        match frame.init(&mut rest) {
            Ok(()) => {}
            Err(error) => match skipped_bytes(&error) {
                Some(length) => match rest.get(length..) {
                    Some(after) => {
                        rest = after;
                        continue;
                    }
                    None => return (decoded, DecodedEnd::Cut),
                },
                None => return (decoded, failed_end(rest)),
            },
        }
        let end = decode_frame(&mut frame, &mut rest, &mut decoded, max);
        if end != DecodedEnd::Whole {
            decoded.truncate(max);
            return (decoded, end);
        }
    }
    (decoded, DecodedEnd::Whole)
}

/// Decodes the blocks of one frame.
fn decode_frame(
    frame: &mut FrameDecoder,
    rest: &mut &[u8],
    decoded: &mut Vec<u8>,
    max: usize,
) -> DecodedEnd {
    loop {
        let step = frame.decode_blocks(&mut *rest, BlockDecodingStrategy::UptoBytes(STEP_BYTES));
        let is_last = match &step {
            Ok(is_last) => *is_last,
            // Without a last block, the decoder keeps what later blocks may refer to.
            Err(_) => {
                let end = frame.decode_blocks(&LAST_BLOCK[..], BlockDecodingStrategy::All);
                end.unwrap_or_default()
            }
        };
        decoded.extend(frame.collect().unwrap_or_default());
        match step {
            _ if decoded.len() > max => return DecodedEnd::Longer,
            Err(_) => return failed_end(rest),
            Ok(_) if is_last => return DecodedEnd::Whole,
            Ok(_) => {}
        }
    }
}

/// The end of a body at an error: if nothing is left of the body, it was cut off.
fn failed_end(rest: &[u8]) -> DecodedEnd {
    if rest.is_empty() { DecodedEnd::Cut } else { DecodedEnd::Damaged }
}

/// Returns the length of a skippable frame, whose head has been read.
fn skipped_bytes(error: &FrameDecoderError) -> Option<usize> {
    match error {
        FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
            length, ..
        }) => usize::try_from(*length).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    const TEXT: &[u8] = b"{\"tea\": \"green tea, and green tea again\"}";

    fn coded(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    #[test]
    fn all_frames_are_decoded_and_skippable_frames_are_skipped() {
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let body = [coded(TEXT), skippable.clone(), coded(b""), coded(TEXT), skippable].concat();

        assert_eq!(decode_zstd(&body, 1000), (TEXT.repeat(2), DecodedEnd::Whole));
        assert_eq!(decode_zstd(&body, 50), (TEXT.repeat(2)[..50].to_vec(), DecodedEnd::Longer));
        assert_eq!(decode_zstd(&body, 82).1, DecodedEnd::Whole);
    }

    #[test]
    fn a_body_that_is_cut_off_is_decoded_as_far_as_its_blocks_go() {
        let long: Vec<u8> = (0..60_000).flat_map(|number: u32| number.to_le_bytes()).collect();
        let body = coded(&long);

        let (decoded, end) = decode_zstd(&body[..body.len() - 5], 1 << 20);

        assert_eq!(end, DecodedEnd::Cut);
        assert!(decoded.len() >= 128 << 10 && long.starts_with(&decoded), "{}", decoded.len());
        assert_eq!(decode_zstd(&coded(TEXT)[..10], 1000), (Vec::new(), DecodedEnd::Cut));
    }

    #[test]
    fn a_body_of_another_form_is_damaged() {
        assert_eq!(decode_zstd(TEXT, 1000), (Vec::new(), DecodedEnd::Damaged));
        let (decoded, end) = decode_zstd(&[&coded(TEXT)[..], b"more text"].concat(), 1000);
        assert_eq!((decoded.as_slice(), end), (TEXT, DecodedEnd::Damaged));
    }

    #[test]
    fn a_large_window_is_refused() {
        // A frame with a window descriptor of 16 MiB and one empty block.
        let frame = |exponent: u8| [0x28, 0xb5, 0x2f, 0xfd, 0, exponent << 3, 1, 0, 0];

        assert_eq!(decode_zstd(&frame(23 - 10), 10), (Vec::new(), DecodedEnd::Whole));
        assert_eq!(decode_zstd(&frame(24 - 10), 10).1, DecodedEnd::Damaged);
    }
}
