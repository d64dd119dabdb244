"""The functions of Spark that are pure, by what their result depends on; the others: `sql/impure_functions.py`.

A function that is in none of these sets is not known. A test holds them against the functions of the Spark in use.
"""

from __future__ import annotations

from twofold_algebra.sql.impure_functions import names

GREATEST = "F.max_by or F.min_by with a tie-break: F.max_by(x, F.struct(order, x))"
SORTED = "F.sort_array(F.collect_list(x))"
ORDERED: dict[str, str] = {
    **dict.fromkeys(("any_value", "first", "first_value", "last", "last_value"), GREATEST),
    **dict.fromkeys(("max_by", "min_by"), "a tie-break in the order, F.struct(order, x)"),
    **dict.fromkeys(("array_agg", "collect_list"), SORTED),
    "collect_set": "F.sort_array(F.collect_set(x))",
    **dict.fromkeys(
        ("listagg", "string_agg"), "F.array_join(F.sort_array(F.collect_list(x.cast('string'))), separator)"
    ),
    "mode": "F.mode(x, deterministic=True)",
    "histogram_numeric": "a group of each value with F.count",
    **dict.fromkeys(("try_sum", "try_avg"), 'F.sum or F.avg, of x.cast("decimal(38, 6)") where it could overflow'),
}
"""Aggregates whose result depends on the order of rows or on chance -> what to use instead."""

INEXACT = names(
    """
    approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine corr covar_pop covar_samp hll_sketch_agg
    hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
    kll_sketch_agg_double kll_sketch_agg_float kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
    kurtosis percentile_approx regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness std stddev
    stddev_pop stddev_samp theta_intersection_agg theta_sketch_agg theta_union_agg tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double
    tuple_union_agg_integer var_pop var_samp variance vector_avg vector_sum
    """
)
"""Functions whose result differs between orders of rows, or by chance, by more than two sides of a table may differ."""

MATCHES = "find_matches"
"""Stands in a plan for what Python makes of the rows of a key."""

AGGREGATES = names(
    """
    any approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine avg bit_and
    bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or corr count count_distinct count_if
    count_min_sketch covar_pop covar_samp every grouping grouping_id hll_sketch_agg hll_union_agg kll_merge_agg_bigint
    kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis
    max mean measure median min percentile percentile_approx percentile_cont percentile_disc product regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std
    stddev stddev_pop stddev_samp sum sum_distinct theta_intersection_agg theta_sketch_agg theta_union_agg try_avg
    try_sum tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance vector_avg
    vector_sum
    """
) | {*ORDERED, MATCHES}
"""Functions of the rows of a group."""


WINDOW = names("cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number")
"""Functions that stand before `.over(...)` alone."""
COMPARING = names("max min max_by min_by mode collect_set count_distinct sum_distinct approx_count_distinct")
"""Aggregates that compare the values of rows with each other."""
EXTREMES = names("max_by min_by")
"""Aggregates that bring an order of their own."""
NEED_ORDER = names("row_number lag lead nth_value ntile") | (frozenset(ORDERED) - {"collect_set", "mode"} - EXTREMES)
"""Functions whose result over a window depends on the order of its rows."""
IGNORING = names("any_value first first_value last last_value")
"""Aggregates that pass over null values where their second argument says so."""

GENERATORS = names(
    """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range sql_keywords stack
    variant_explode variant_explode_outer
    """
)
"""Functions that make several rows or columns of one value."""

TIME_WINDOWS = frozenset({"window", "session_window"})

ROW = names(
    """
    ! != % & * + - / < << <= <=> <> = == > >= >> >>> ^ | || ~ abs acos acosh asin asinh atan atan2 atanh bin bround cbrt
    ceil ceiling conv cos cosh cot csc degrees div e exp expm1 factorial floor greatest hex hypot least ln log log10
    log1p log2 mod negate negative pi pmod positive pow power radians rint round sec sign signum sin sinh sqrt tan tanh
    try_add try_divide try_mod try_multiply try_subtract unhex width_bucket add_months convert_timezone date_add
    date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname
    dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day make_date make_dt_interval
    make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month monthname
    months_between next_day quarter second time_bucket time_diff time_from_micros time_from_millis time_from_seconds
    time_to_micros time_to_millis time_to_seconds time_trunc timestamp_micros timestamp_millis timestamp_seconds
    timestampadd timestampdiff to_date to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
    to_utc_timestamp trunc try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
    try_to_date try_to_time try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday
    weekofyear window_time year aes_decrypt assert_true bitmap_bit_position bitmap_bucket_number bitmap_count
    raise_error try_aes_decrypt typeof aggregate array_sort exists filter forall map_filter map_zip_with reduce
    transform transform_keys transform_values zip_with and equal_null ilike in isnan isnotnan isnotnull isnull like not
    or regexp regexp_like rlike approx_top_k_estimate hll_sketch_estimate hll_union kll_sketch_get_n_bigint
    kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
    kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
    kll_sketch_to_string_double kll_sketch_to_string_float theta_difference theta_intersection theta_sketch_estimate
    theta_union tuple_difference_double tuple_difference_integer tuple_difference_theta_double
    tuple_difference_theta_integer tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double
    tuple_intersection_theta_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
    tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
    tuple_union_double tuple_union_integer tuple_union_theta_double tuple_union_theta_integer array array_append
    array_compact array_contains array_distinct array_except array_insert array_intersect array_join array_max array_min
    array_position array_prepend array_remove array_repeat array_size array_union arrays_overlap arrays_zip flatten get
    sequence slice sort_array ascii base64 bit_length btrim char char_length character_length chr collate collation
    concat_ws contains decode elt encode endswith find_in_set format_number format_string initcap instr is_valid_utf8
    lcase left len length levenshtein locate lower lpad ltrim luhn_check make_valid_utf8 mask octet_length overlay
    position printf quote regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr
    repeat replace right rpad rtrim sentences soundex space split split_part startswith substr substring substring_index
    to_binary to_char to_number to_varchar translate trim try_to_binary try_to_number try_validate_utf8 ucase unbase64
    upper validate_utf8 between coalesce if ifnull nanvl nullif nullifzero nvl nvl2 when zeroifnull case bigint binary
    boolean cast date decimal double float int smallint string time timestamp tinyint bit_count bit_get getbit shiftleft
    shiftright shiftrightunsigned cardinality concat element_at reverse size try_element_at crc32 hash md5 sha sha1 sha2
    xxhash64 from_avro schema_of_avro to_avro from_csv schema_of_csv to_csv from_json get_json_object json_array_length
    json_object_keys schema_of_json to_json from_protobuf to_protobuf from_xml schema_of_xml to_xml xpath xpath_boolean
    xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string is_valid_variant is_variant_null
    parse_json schema_of_variant to_variant_object try_parse_json try_variant_get variant_get map map_concat
    map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values str_to_map named_struct struct
    parse_url try_parse_url try_url_decode url_decode url_encode st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid
    st_srid vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize field try_cast
    """
)
"""Functions and operators of the values of one row; `field` and `try_cast` are the algebra's own names of syntax."""

UNSORTED = frozenset({"collect_list", "collect_set", "array_agg"})
"""Aggregates of which only the order is open, so that sorting closes it ..."""
SORTING = frozenset({"sort_array", "array_sort", "size", "array_size", "cardinality", "array_contains", "array_max",
                     "array_min"})  # fmt: skip
"""... by one of these."""
