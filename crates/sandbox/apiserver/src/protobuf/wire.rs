//! Wire format.

use super::ProtobufError;

/// Value of a field on the wire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Payload<'b> {
    Varint(u64),
    Bytes(&'b [u8]),
    /// Eight bytes: a floating-point number.
    Double(f64),
    /// Four bytes. No Kubernetes type has such fields. They are skipped.
    Fixed,
}

impl<'b> Payload<'b> {
    pub(super) fn varint(self, number: u32) -> Result<u64, ProtobufError> {
        match self {
            Self::Varint(value) => Ok(value),
            other => Err(other.unexpected(number)),
        }
    }

    pub(super) fn bytes(self, number: u32) -> Result<&'b [u8], ProtobufError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.unexpected(number)),
        }
    }

    pub(super) fn double(self, number: u32) -> Result<f64, ProtobufError> {
        match self {
            Self::Double(value) => Ok(value),
            other => Err(other.unexpected(number)),
        }
    }

    pub(super) fn text(self, number: u32) -> Result<&'b str, ProtobufError> {
        std::str::from_utf8(self.bytes(number)?).map_err(|_| ProtobufError::Text { number })
    }

    pub(super) fn unexpected(self, number: u32) -> ProtobufError {
        let wire_type = match self {
            Self::Varint(_) => 0,
            Self::Bytes(_) => 2,
            Self::Double(_) => 1,
            Self::Fixed => 5,
        };
        ProtobufError::WireType { number, wire_type }
    }
}

/// Iterator over the fields of a message.
pub(super) struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next field, if any.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Payload<'b>)>, ProtobufError> {
        if self.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| ProtobufError::CutOff)?;
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?.try_into().map_err(|_| ProtobufError::CutOff)?;
                Payload::Double(f64::from_le_bytes(bytes))
            }
            2 => {
                let length = self.varint()?;
                Payload::Bytes(self.take(usize::try_from(length).map_err(|_| ProtobufError::CutOff)?)?)
            }
            5 => {
                self.take(4)?;
                Payload::Fixed
            }
            #[expect(clippy::cast_possible_truncation, reason = "three bits")]
            other => return Err(ProtobufError::WireType { number, wire_type: other as u8 }),
        };
        Ok(Some((number, payload)))
    }

    /// Decodes a varint.
    pub(super) fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(ProtobufError::CutOff)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtobufError::CutOff)
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::CutOff)?;
        self.rest = rest;
        Ok(taken)
    }
}
