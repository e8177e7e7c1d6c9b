//! `operator_details.csv`: operators called by the host, with the shapes of their arguments.
//!
//! Cells contain line breaks and complete call stacks, so the file has several times as many lines as records. Only
//! names and shapes are read, one record at a time.

use super::{prelude::*, records::TableRows};

pub(super) fn for_each_operator(file: &Path, mut visit: impl FnMut(&str, &str)) -> Result<(), ProfileError> {
    let input = open_regular(file).map_err(ProfileError::io(file))?;
    let mut rows = TableRows::new(input, 0);
    let Some((header, _)) = rows.next_row(file)? else { return Ok(()) };
    if header.as_slice().starts_with(b"version https://git-lfs") {
        return Err(ProfileError::LfsPointer(file.to_owned()));
    }
    let find = |name: &str| header.iter().position(|cell| cell.trim_ascii() == name.as_bytes());
    let (Some(name), Some(shapes)) = (find("Name"), find("Input Shapes")) else { return Ok(()) };
    while let Some((record, _)) = rows.next_row(file)? {
        let text = |column| std::str::from_utf8(record.get(column).unwrap_or_default()).unwrap_or_default();
        visit(text(name), text(shapes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_keeps_line_breaks_in_cells() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("operator_details.csv");
        let text = "Name,Input Shapes,Call Stack,Host Self Duration(us)\r\n\
                    aten::mm,\"4,8;\n8,2;\n\",\"a.py(1): f;\r\nb.py(2): g\",1.5\r\n\
                    aten::add,2,,0.5\r\n";
        fs::write(&file, text).expect("written");
        let mut seen = Vec::new();
        for_each_operator(&file, |name, shapes| seen.push((name.to_owned(), shapes.to_owned())))
            .expect("read");
        assert_eq!(seen, [("aten::mm".into(), "4,8;\n8,2;\n".into()), ("aten::add".into(), "2".into())]);
        fs::write(&file, "version https://git-lfs.github.com/spec/v1\n").expect("written");
        assert!(matches!(for_each_operator(&file, |_, _| {}), Err(ProfileError::LfsPointer(_))));
        fs::write(&file, format!("Name,Input Shapes\naten::mm,\"4,8\n{}", "x\n".repeat(9 << 20)))
            .expect("written");
        let endless = for_each_operator(&file, |_, _| {});
        assert!(matches!(endless, Err(ProfileError::Endless { line: 2, .. })), "{endless:?}");
        fs::write(&file, "Name,Call Stack\naten::mm,x\n").expect("written");
        for_each_operator(&file, |_, _| panic!("no shapes were recorded")).expect("nothing to read");
    }
}
