//! Tokens that frameworks pad to complete tiles.

use super::rules::Padding;

/// Lengths of tiles to which frameworks pad tokens.
const TILES: [u64; 2] = [16, 32];
/// Tile that is assumed only from this number of tokens on: heads are padded to nothing.
const SMALL_TILE: (u64, u64) = (8, 64);
/// Rows of a tile of the cube unit, which a product completes itself.
const CUBE_TILE: u64 = 16;
/// Tile that the superseded tool assumes, too.
const SUPERSEDED_TILE: u64 = 64;

/// Greatest ratio of padded tokens to the others, as a fraction. The rounding of a sequence to tiles of 16 or 32 tokens
/// adds less to one of usual length; more tokens are more work.
const MOST_GROWTH: (u64, u64) = (5, 4);

/// Returns the padding by which the tokens of a framework fit those of a row. A plain product, one matrix times one
/// matrix, completes tiles of the cube unit.
pub(crate) fn match_padding(query: u64, row: u64, is_plain_product: bool) -> Option<Padding> {
    let is_near = |more: u64, less: u64| {
        u128::from(more) * u128::from(MOST_GROWTH.1) <= u128::from(less) * u128::from(MOST_GROWTH.0)
    };
    if fills_tiles(query, row, &TILES) && (is_near(query, row) || is_plain_product && query <= CUBE_TILE) {
        Some(Padding::Query)
    } else if is_plain_product
        && query.checked_next_multiple_of(CUBE_TILE) == Some(row)
        && is_near(row, query)
        && row > query
    {
        Some(Padding::Row)
    } else {
        None
    }
}

/// Returns true if the superseded tool takes tokens for those of a row, padded.
pub(crate) fn is_padded_for_superseded(query: u64, row: u64) -> bool {
    fills_tiles(query, row, &TILES) || fills_tiles(query, row, &[SUPERSEDED_TILE])
}

/// Returns true if tokens are fewer ones, completed to one of the tiles, or to the small one.
fn fills_tiles(tokens: u64, fewer: u64, tiles: &[u64]) -> bool {
    let fills = |tile: u64| fewer.checked_next_multiple_of(tile) == Some(tokens);
    let (small, from) = SMALL_TILE;
    tokens > fewer && fewer > 0 && (tiles.iter().any(|tile| fills(*tile)) || fewer >= from && fills(small))
}

/// Greatest distance of tokens that padding can bridge.
pub(crate) const LONGEST_PADDING: u64 = SUPERSEDED_TILE - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_completes_tiles() {
        let (query_padded, row_padded) = (Some(Padding::Query), Some(Padding::Row));
        for (query, row, of_products, of_others, is_superseded) in [
            (144, 136, query_padded, query_padded, true),
            (160, 136, query_padded, query_padded, true),
            (136, 129, query_padded, query_padded, true),
            (336, 330, query_padded, query_padded, true),
            (512, 496, query_padded, query_padded, true),
            (4104, 4099, query_padded, query_padded, true),
            // More than a quarter, or another tile.
            (192, 136, None, None, true),
            (320, 260, None, None, true),
            (32, 24, None, None, true),
            (64, 1, None, None, true),
            (40, 33, None, None, false),
            (145, 136, None, None, false),
            (136, 136, None, None, false),
            // One tile of the cube unit.
            (16, 3, query_padded, None, true),
            (32, 3, None, None, true),
            (136, 144, row_padded, None, false),
            (136, 160, None, None, false),
            (17, 32, None, None, false),
            (9, 16, None, None, false),
            (16, 0, None, None, false),
            (u64::MAX, u64::MAX - 1, None, None, false),
        ] {
            assert_eq!(match_padding(query, row, true), of_products, "{query} and {row}");
            assert_eq!(match_padding(query, row, false), of_others, "{query} and {row}");
            assert_eq!(is_padded_for_superseded(query, row), is_superseded, "{query} and {row}");
        }
    }
}
