//! What `events/*/*/format` says about an event's bytes, and numbers and texts out of them.
//!
//! *Owns*: the format files' grammar and bounded access to fields. *May not touch*: files, and what
//! a field means. Offsets come from the kernel each time and are never written down here: they
//! differ between releases.

/// A fixed piece of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) offset: usize,
    pub(super) size: usize,
    kind: FieldKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    /// The bytes themselves.
    Plain,
    /// A `__data_loc`: 16 bits length and 16 bits offset from the event's start.
    Located,
    /// A `__rel_loc`: the same from the end of this field.
    LocatedAfter,
}

/// A field with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedField {
    pub(super) name: String,
    pub(super) field: Field,
}

/// A whole format file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventFormat {
    /// The value of `common_type` in this event's bytes.
    pub(super) id: u16,
    fields: Vec<NamedField>,
}

impl EventFormat {
    /// Reads a format file; `None` if the text is not one.
    pub(super) fn parse(text: &str) -> Option<EventFormat> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        let fields = parse_fields(text);
        (!fields.is_empty()).then_some(EventFormat { id, fields })
    }

    /// The field of that name.
    pub(super) fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.field)
    }
}

/// All lines like `field:char rwbs[10]; offset:28; size:10; signed:0;`. Others are passed over.
pub(super) fn parse_fields(text: &str) -> Vec<NamedField> {
    text.lines().filter_map(parse_field).collect()
}

fn parse_field(line: &str) -> Option<NamedField> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?.trim();
    let (mut offset, mut size) = (None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", value)) => offset = value.parse().ok(),
            Some(("size", value)) => size = value.parse().ok(),
            _ => {}
        }
    }
    let name = declaration.rsplit([' ', '*']).next()?;
    let name = name.split('[').next()?;
    let kind = match declaration.split(' ').next()? {
        "__data_loc" => FieldKind::Located,
        "__rel_loc" => FieldKind::LocatedAfter,
        _ => FieldKind::Plain,
    };
    Some(NamedField { name: name.to_string(), field: Field { offset: offset?, size: size?, kind } })
}

impl Field {
    fn raw<'a>(&self, event: &'a [u8]) -> Option<&'a [u8]> {
        event.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// The field as a number in the machine's byte order, without its sign: 1, 2, 4 or 8 bytes.
    pub(super) fn number(&self, event: &[u8]) -> Option<u64> {
        let bytes = self.raw(event)?;
        Some(match self.size {
            1 => u64::from(*bytes.first()?),
            2 => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            4 => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            8 => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }

    /// The field's bytes; if the field points elsewhere, the bytes there.
    pub(super) fn bytes<'a>(&self, event: &'a [u8]) -> Option<&'a [u8]> {
        if self.kind == FieldKind::Plain {
            return self.raw(event);
        }
        let place = self.number(event)?;
        let length = usize::try_from(place >> 16 & 0xffff).ok()?;
        let base = if self.kind == FieldKind::LocatedAfter {
            self.offset.checked_add(self.size)?
        } else {
            0
        };
        let start = base.checked_add(usize::try_from(place & 0xffff).ok()?)?;
        event.get(start..start.checked_add(length)?)
    }

    /// The field's bytes up to the first zero.
    pub(super) fn text<'a>(&self, event: &'a [u8]) -> Option<&'a [u8]> {
        let bytes = self.bytes(event)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        bytes.get(..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: block_rq_issue\nID: 2104\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:char rwbs[10];\toffset:12;\tsize:10;\tsigned:0;\n\
        \tfield:struct io_wq_work * work;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] cmd;\toffset:32;\tsize:4;\tsigned:0;\n\
        \tfield:__rel_loc char[] after;\toffset:36;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"field: %d\", REC->dev\n";

    #[test]
    fn every_form_of_declaration_has_its_name() {
        let format = EventFormat::parse(FORMAT).expect("a format");
        let names: Vec<&str> = format.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["common_type", "common_pid", "dev", "rwbs", "work", "cmd", "after"]);
        assert_eq!(format.field("rwbs").map(|field| (field.offset, field.size)), Some((12, 10)));
        for wrong in ["", "ID: x\n", "ID: 7\n", "ID: 70000\n\tfield:int a;\toffset:0;\tsize:4;\n"] {
            assert_eq!(EventFormat::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn fields_give_numbers_and_texts_and_nothing_outside_the_event() {
        let format = EventFormat::parse(FORMAT).expect("a format");
        let mut event = vec![0u8; 52];
        event[0..2].copy_from_slice(&2104u16.to_ne_bytes());
        event[8..12].copy_from_slice(&7_340_032u32.to_ne_bytes());
        event[12..16].copy_from_slice(b"FWS\0");
        event[32..36].copy_from_slice(&(6u32 << 16 | 40).to_ne_bytes());
        event[36..40].copy_from_slice(&(4u32 << 16 | 8).to_ne_bytes());
        event[40..46].copy_from_slice(b"hello\0");
        event[48..52].copy_from_slice(b"rel\0");
        let field = |name: &str| format.field(name).expect(name);
        assert_eq!(field("common_type").number(&event), Some(2104));
        assert_eq!(field("dev").number(&event), Some(7_340_032));
        assert_eq!(field("rwbs").text(&event), Some(&b"FWS"[..]));
        assert_eq!(field("rwbs").number(&event), None);
        assert_eq!(field("cmd").text(&event), Some(&b"hello"[..]));
        assert_eq!(field("after").text(&event), Some(&b"rel"[..]));
        event[32..36].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(field("cmd").text(&event), None);
        assert_eq!(field("rwbs").text(&event[..20]), None);
        assert_eq!(field("dev").number(&[]), None);
    }
}
