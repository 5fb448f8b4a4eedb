//! OFF meshes, from text to vertices and triangles.
//!
//! What is read: the word `OFF`, which ModelNet glues to the counts in places (`OFF123 456 0`), the counts of vertices
//! and faces, then a line for each vertex (three numbers) and a line for each face (the number of corners, the corners,
//! and colors, which are skipped). Faces of more than three corners become fans of triangles, those of fewer have no
//! surface and are left out. `#` begins a comment. What follows the last face is not looked at.
//! Vertices with normals or colors (`NOFF`, `COFF`) and the binary form are refused.

use crate::kernels::decimal::{self, Number};

/// How much of a mesh is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshLimit {
    pub vertices: usize,
    pub triangles: usize,
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffError {
    /// Bytes from the beginning of the file.
    pub at: usize,
    pub expected: String,
    pub found: String,
}

/// Reads a mesh into memory that is already there. No count of the file is believed beyond the bytes that follow it.
pub fn parse_off(
    bytes: &[u8],
    limit: MeshLimit,
    vertices: &mut Vec<[f32; 3]>,
    triangles: &mut Vec<[u32; 3]>,
) -> Result<(), OffError> {
    vertices.clear();
    triangles.clear();
    let mut text = Text { bytes, at: 0 };
    let (n_vertices, n_faces) = text.counts(limit)?;

    vertices.reserve_exact(n_vertices);
    for _ in 0..n_vertices {
        vertices.push(text.vertex()?);
    }
    // No triangle takes fewer bytes of text than `3 0 1 2` and the end of its line.
    let left = bytes.len() - text.at;
    triangles.reserve_exact(n_faces.min(left / 8 + 1));
    for _ in 0..n_faces {
        text.face(n_vertices, limit.triangles, triangles)?;
    }
    Ok(())
}

struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The fewest bytes of a vertex and its line's end, and those of a face.
const VERTEX_BYTES: usize = "0 0 0\n".len();
const FACE_BYTES: usize = "0\n".len();

impl Text<'_> {
    fn counts(&mut self, limit: MeshLimit) -> Result<(usize, usize), OffError> {
        self.skip_lines();
        if !self.bytes[self.at..].starts_with(b"OFF") {
            return Err(self.expected("the word OFF"));
        }
        self.at += "OFF".len();
        self.skip_lines();
        let at = self.at;
        let n_vertices = self.integer("the number of vertices")?;
        self.skip_spaces();
        let n_faces = self.integer("the number of faces")?;
        // The number of edges follows, and nobody needs it.
        self.skip_line();

        let wrong = |expected: String| OffError {
            at,
            expected,
            found: format!("{n_vertices} vertices and {n_faces} faces"),
        };
        if n_vertices > limit.vertices || n_faces > limit.triangles {
            return Err(wrong(format!(
                "at most {} vertices and {} triangles",
                limit.vertices, limit.triangles
            )));
        }
        let left = self.bytes.len() - self.at;
        let needed = n_vertices
            .saturating_mul(VERTEX_BYTES)
            .saturating_add(n_faces.saturating_mul(FACE_BYTES));
        // The last line may have no end.
        if needed > left + 1 {
            return Err(wrong(format!("no more than {left} bytes can hold")));
        }
        Ok((n_vertices, n_faces))
    }

    #[inline]
    fn vertex(&mut self) -> Result<[f32; 3], OffError> {
        self.skip_lines();
        let mut vertex = [0.0; 3];
        for coordinate in &mut vertex {
            self.skip_spaces();
            match decimal::read_f32(&self.bytes[self.at..]) {
                Some(Number { value, len }) if value.is_finite() => {
                    *coordinate = value;
                    self.at += len;
                }
                _ => return Err(self.expected("a finite number")),
            }
        }
        self.skip_spaces();
        match self.bytes.get(self.at) {
            None | Some(b'\n' | b'\r' | b'#') => Ok(vertex),
            Some(_) => Err(self.expected("the end of the line after three numbers")),
        }
    }

    #[inline]
    fn face(
        &mut self,
        n_vertices: usize,
        limit: usize,
        triangles: &mut Vec<[u32; 3]>,
    ) -> Result<(), OffError> {
        self.skip_lines();
        let n_corners = self.integer("a number of corners")?;
        let (mut first, mut before) = (0, 0);
        for corner in 0..n_corners {
            self.skip_spaces();
            let here = self.at;
            let index = self.integer("the number of a vertex")?;
            let vertex = match u32::try_from(index) {
                Ok(vertex) if index < n_vertices => vertex,
                _ => {
                    self.at = here;
                    return Err(self.expected(&format!("a vertex below {n_vertices}")));
                }
            };
            match corner {
                0 => first = vertex,
                1 => {}
                _ => {
                    let held = triangles.len();
                    if held >= limit {
                        self.at = here;
                        return Err(self.expected(&format!("at most {limit} triangles")));
                    }
                    if held == triangles.capacity() {
                        // Memory doubles, but never beyond the limit.
                        triangles.reserve_exact(held.max(16).min(limit - held));
                    }
                    triangles.push([first, before, vertex]);
                }
            }
            before = vertex;
        }
        self.skip_line();
        Ok(())
    }

    #[inline]
    fn integer(&mut self, what: &str) -> Result<usize, OffError> {
        match decimal::read_usize(&self.bytes[self.at..]) {
            Some(Number { value, len }) => {
                self.at += len;
                Ok(value)
            }
            None => Err(self.expected(what)),
        }
    }

    #[inline]
    fn skip_spaces(&mut self) {
        while let Some(b' ' | b'\t') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    /// To the next word, over line ends and comments.
    #[inline]
    fn skip_lines(&mut self) {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(b'#') => self.skip_line(),
                _ => return,
            }
        }
    }

    /// To the end of the line.
    #[inline]
    fn skip_line(&mut self) {
        while self
            .bytes
            .get(self.at)
            .is_some_and(|&byte| byte != b'\n' && byte != b'\r')
        {
            self.at += 1;
        }
    }

    #[cold]
    fn expected(&self, expected: &str) -> OffError {
        let rest = &self.bytes[self.at..];
        let line = rest
            .iter()
            .take(24)
            .position(|&byte| byte == b'\n' || byte == b'\r')
            .unwrap_or(rest.len().min(24));
        OffError {
            at: self.at,
            expected: expected.to_owned(),
            found: if rest.is_empty() {
                "the end of the file".to_owned()
            } else {
                format!("\"{}\"", rest[..line].escape_ascii())
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: MeshLimit = MeshLimit {
        vertices: 1000,
        triangles: 1000,
    };

    type Mesh = (Vec<[f32; 3]>, Vec<[u32; 3]>);

    fn parse(text: &[u8]) -> Result<Mesh, OffError> {
        let (mut vertices, mut triangles) = Mesh::default();
        parse_off(text, LIMIT, &mut vertices, &mut triangles)?;
        Ok((vertices, triangles))
    }

    fn check(text: &str) {
        let vertices = vec![[0.0, 0.5, -1.0], [1.0, 0.0, 0.0], [0.0, 2.0, 250.0]];
        assert_eq!(parse(text.as_bytes()), Ok((vertices, vec![[0, 1, 2]])));
    }

    fn check_refused(text: &str, at: usize, expected: &str, found: &str) {
        let error = OffError {
            at,
            expected: expected.to_owned(),
            found: found.to_owned(),
        };
        assert_eq!(parse(text.as_bytes()), Err(error));
    }

    #[test]
    fn a_plain_mesh_is_read() {
        check("OFF\n3 1 0\n0 0.5 -1\n1 0 0\n0.0 2. 2.5e2\n3 0 1 2\n");
    }

    #[test]
    fn counts_may_be_glued_to_the_word() {
        check("OFF3 1 0\n0 0.5 -1\n1 0 0\n0.0 2. 250\n3 0 1 2");
    }

    #[test]
    fn comments_blank_lines_and_carriage_returns_are_skipped() {
        check(
            "# made by hand\r\nOFF # here\r\n\r\n3 1\r\n# vertices\r\n 0 .5 -1\r\n1\t0 0 # one\r\n0.0 2. 250\r\n\r\n\
             3 0 1 2 255 0 0\r\nwhat follows",
        );
    }

    #[test]
    fn polygons_become_fans_and_lines_are_left_out() {
        let text =
            b"OFF\n5 3 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n0 0 1\n5 0 1 2 3 4 0.1 0.2 0.3\n2 0 1\n0\n";
        let (_, triangles) = parse(text).unwrap();
        assert_eq!(triangles, [[0, 1, 2], [0, 2, 3], [0, 3, 4]]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        check_refused("", 0, "the word OFF", "the end of the file");
        check_refused("COFF\n", 0, "the word OFF", "\"COFF\"");
        check_refused("OFF BINARY\n", 4, "the number of vertices", "\"BINARY\"");
        check_refused("OFF\n1 0 0\n0 nan 0\n", 12, "a finite number", "\"nan 0\"");
        check_refused(
            "OFF\n1 0 0\n0 1e99 0\n",
            12,
            "a finite number",
            "\"1e99 0\"",
        );
        check_refused(
            "OFF\n1 0 0\n0 0 0 255\n",
            16,
            "the end of the line after three numbers",
            "\"255\"",
        );
        check_refused(
            "OFF\n1 1 0\n0 0 0\n3 0 0 1\n",
            22,
            "a vertex below 1",
            "\"1\"",
        );
        check_refused(
            "OFF\n1 1 0\n0 0 0\n3 0 0\n0",
            21,
            "the number of a vertex",
            "\"\"",
        );
    }

    #[test]
    fn counts_beyond_the_bytes_or_the_limit_are_refused_before_memory_is_taken() {
        check_refused(
            "OFF\n900 0 0\n0 0 0\n",
            4,
            "no more than 7 bytes can hold",
            "900 vertices and 0 faces",
        );
        check_refused(
            "OFF\n1001 0 0\n",
            4,
            "at most 1000 vertices and 1000 triangles",
            "1001 vertices and 0 faces",
        );
        let fan = format!("OFF\n1 1 0\n0 0 0\n2000{}\n", " 0".repeat(2000));
        let mut triangles = Vec::new();
        let error = parse_off(fan.as_bytes(), LIMIT, &mut Vec::new(), &mut triangles).unwrap_err();
        assert_eq!(error.expected, "at most 1000 triangles");
        assert!(triangles.capacity() <= 1000);
    }

    proptest! {
        #[test]
        fn damaged_files_are_errors_or_meshes_within_the_limit(
            cut in 0_usize..120,
            place in 0_usize..120,
            byte: u8,
        ) {
            let mut text = b"OFF\n4 3 0\n0 0.5 -1\n1 0 0\n0.0 2. 2.5e2\n1 1 1\n3 0 1 2\n4 0 1 2 3 9 9 9\n3 3 2 1\n".to_vec();
            let place = place % text.len();
            text[place] = byte;
            text.truncate(text.len().saturating_sub(cut % 7 * (cut / 7)));
            if let Ok((vertices, triangles)) = parse(&text) {
                prop_assert!(vertices.iter().flatten().all(|number| number.is_finite()));
                prop_assert!(triangles.iter().flatten().all(|&corner| (corner as usize) < vertices.len()));
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = parse(&[b"OFF 3 1 0\n", &bytes[..]].concat());
        }
    }
}
