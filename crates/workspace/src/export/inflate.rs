//! Reads what zlib wrote (RFC 1950 and 1951), piece by piece: enough to look at an object of git before git does.

use std::io::{self, BufRead};

/// What is not zlib's, or could not be read.
#[derive(Debug)]
pub(super) enum Bad {
    Data,
    Io(io::Error),
}

struct Inflate<'a, R> {
    input: R,
    /// Bits that were read and not used, the lowest first.
    bits: u32,
    count: u32,
    /// What came out last; the newest half of it is what may be referred to.
    out: Vec<u8>,
    /// How much of that was handed over.
    told: usize,
    checksum: (u32, u32),
    sink: &'a mut dyn FnMut(&[u8]) -> Result<(), Bad>,
}

/// How many codes there are of each length, and the symbols in the order of their codes.
struct Huffman {
    counts: [u16; MAX_BITS + 1],
    symbols: Vec<u16>,
}

const MAX_BITS: usize = 15;
const WINDOW: usize = 32 << 10;
const ADLER: u32 = 65_521;
const LENGTHS: [(u16, u32); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];
const DISTANCES: [(u16, u32); 30] = [
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 1),
    (7, 1),
    (9, 2),
    (13, 2),
    (17, 3),
    (25, 3),
    (33, 4),
    (49, 4),
    (65, 5),
    (97, 5),
    (129, 6),
    (193, 6),
    (257, 7),
    (385, 7),
    (513, 8),
    (769, 8),
    (1025, 9),
    (1537, 9),
    (2049, 10),
    (3073, 10),
    (4097, 11),
    (6145, 11),
    (8193, 12),
    (12289, 12),
    (16385, 13),
    (24577, 13),
];
/// In which order the lengths of the codes for lengths are written.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// Hands over everything that was packed. Nothing may follow it in the input.
pub(super) fn inflate(input: impl BufRead, sink: &mut dyn FnMut(&[u8]) -> Result<(), Bad>) -> Result<(), Bad> {
    let out = Vec::with_capacity(3 * WINDOW);
    let mut inflate = Inflate { input, bits: 0, count: 0, out, told: 0, checksum: (1, 0), sink };
    inflate.all()
}

// === impl Inflate ===

impl<R: BufRead> Inflate<'_, R> {
    fn all(&mut self) -> Result<(), Bad> {
        let (method, flags) = (self.byte()?, self.byte()?);
        let is_header = (u32::from(method) << 8 | u32::from(flags)) % 31 == 0;
        if method & 0x0f != 8 || method >> 4 > 7 || flags & 0x20 != 0 || !is_header {
            return Err(Bad::Data);
        }
        loop {
            let is_last = self.bits(1)? == 1;
            match self.bits(2)? {
                0 => self.stored()?,
                1 => {
                    let lengths: Vec<u8> = [(8, 144), (9, 112), (7, 24), (8, 8)]
                        .iter()
                        .flat_map(|&(length, times)| std::iter::repeat_n(length, times))
                        .collect();
                    self.codes(&Huffman::new(&lengths)?, &Huffman::new(&[5; 30])?)?;
                }
                2 => {
                    let (literals, distances) = self.tables()?;
                    self.codes(&literals, &distances)?;
                }
                _ => return Err(Bad::Data),
            }
            if is_last {
                break;
            }
        }
        self.hand_over()?;
        (self.bits, self.count) = (0, 0);
        let mut told = 0_u32;
        for _ in 0..4 {
            told = told << 8 | u32::from(self.byte()?);
        }
        let is_over = self.input.fill_buf().map_err(Bad::Io)?.is_empty();
        if is_over && told == (self.checksum.1 << 16 | self.checksum.0) { Ok(()) } else { Err(Bad::Data) }
    }

    fn byte(&mut self) -> Result<u8, Bad> {
        let byte = *self.input.fill_buf().map_err(Bad::Io)?.first().ok_or(Bad::Data)?;
        self.input.consume(1);
        Ok(byte)
    }

    fn bits(&mut self, count: u32) -> Result<u32, Bad> {
        while self.count < count {
            self.bits |= u32::from(self.byte()?) << self.count;
            self.count += 8;
        }
        let taken = self.bits & ((1 << count) - 1);
        self.bits >>= count;
        self.count -= count;
        Ok(taken)
    }

    fn stored(&mut self) -> Result<(), Bad> {
        (self.bits, self.count) = (0, 0);
        let (length, check) = (self.short()?, self.short()?);
        if length != !check {
            return Err(Bad::Data);
        }
        for _ in 0..length {
            let byte = self.byte()?;
            self.put(byte)?;
        }
        Ok(())
    }

    fn short(&mut self) -> Result<u16, Bad> {
        Ok(u16::from_le_bytes([self.byte()?, self.byte()?]))
    }

    fn tables(&mut self) -> Result<(Huffman, Huffman), Bad> {
        let literals = self.bits(5)? as usize + 257;
        let distances = self.bits(5)? as usize + 1;
        let codes = self.bits(4)? as usize + 4;
        let mut lengths = [0_u8; 19];
        for &at in &ORDER[..codes] {
            lengths[at] = u8::try_from(self.bits(3)?).map_err(|_| Bad::Data)?;
        }
        let code = Huffman::new(&lengths)?;
        let mut lengths = Vec::with_capacity(literals + distances);
        while lengths.len() < literals + distances {
            let (length, times) = match self.symbol(&code)? {
                length @ 0..16 => (u8::try_from(length).map_err(|_| Bad::Data)?, 1),
                16 => (*lengths.last().ok_or(Bad::Data)?, 3 + self.bits(2)?),
                17 => (0, 3 + self.bits(3)?),
                _ => (0, 11 + self.bits(7)?),
            };
            lengths.extend(std::iter::repeat_n(length, times as usize));
        }
        if lengths.len() > literals + distances || literals > 286 || lengths[256] == 0 {
            return Err(Bad::Data);
        }
        let (literal, distance) = lengths.split_at(literals);
        Ok((Huffman::new(literal)?, Huffman::new(distance)?))
    }

    fn codes(&mut self, literals: &Huffman, distances: &Huffman) -> Result<(), Bad> {
        loop {
            let symbol = self.symbol(literals)?;
            match symbol {
                0..256 => self.put(u8::try_from(symbol).map_err(|_| Bad::Data)?)?,
                256 => return Ok(()),
                _ => {
                    let (base, extra) = *LENGTHS.get(usize::from(symbol) - 257).ok_or(Bad::Data)?;
                    let length = usize::from(base) + self.bits(extra)? as usize;
                    let (base, extra) = *DISTANCES.get(usize::from(self.symbol(distances)?)).ok_or(Bad::Data)?;
                    let distance = usize::from(base) + self.bits(extra)? as usize;
                    for _ in 0..length {
                        let from = self.out.len().checked_sub(distance).ok_or(Bad::Data)?;
                        self.put(self.out[from])?;
                    }
                }
            }
        }
    }

    fn symbol(&mut self, huffman: &Huffman) -> Result<u16, Bad> {
        let (mut code, mut first, mut index) = (0_i32, 0_i32, 0_i32);
        for count in &huffman.counts[1..] {
            code |= i32::try_from(self.bits(1)?).map_err(|_| Bad::Data)?;
            let count = i32::from(*count);
            if code - count < first {
                let at = usize::try_from(index + (code - first)).map_err(|_| Bad::Data)?;
                return huffman.symbols.get(at).copied().ok_or(Bad::Data);
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        Err(Bad::Data)
    }

    fn put(&mut self, byte: u8) -> Result<(), Bad> {
        self.out.push(byte);
        if self.out.len() == 2 * WINDOW {
            self.hand_over()?;
            self.out.drain(..WINDOW);
            self.told = WINDOW;
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<(), Bad> {
        let new = &self.out[self.told..];
        // So many bytes fit into the sums before they have to be reduced.
        for piece in new.chunks(5552) {
            for byte in piece {
                self.checksum.0 += u32::from(*byte);
                self.checksum.1 += self.checksum.0;
            }
            self.checksum = (self.checksum.0 % ADLER, self.checksum.1 % ADLER);
        }
        (self.sink)(new)?;
        self.told = self.out.len();
        Ok(())
    }
}

// === impl Huffman ===

impl Huffman {
    fn new(lengths: &[u8]) -> Result<Self, Bad> {
        let mut counts = [0_u16; MAX_BITS + 1];
        for length in lengths {
            counts[usize::from(*length)] += 1;
        }
        counts[0] = 0;
        let mut left = 1_i32;
        for count in &counts[1..] {
            left = (left << 1) - i32::from(*count);
            if left < 0 {
                return Err(Bad::Data);
            }
        }
        let mut offsets = [0_usize; MAX_BITS + 2];
        for length in 1..=MAX_BITS {
            offsets[length + 1] = offsets[length] + usize::from(counts[length]);
        }
        let mut symbols = vec![0; lengths.len()];
        for (symbol, length) in lengths.iter().enumerate().filter(|(_, length)| **length != 0) {
            let at = &mut offsets[usize::from(*length)];
            symbols[*at] = u16::try_from(symbol).map_err(|_| Bad::Data)?;
            *at += 1;
        }
        Ok(Self { counts, symbols })
    }
}
