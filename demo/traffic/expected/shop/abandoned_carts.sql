SELECT cart_id, version, lines, valid_from + INTERVAL 1 HOUR AS abandoned_at
FROM cart_states
WHERE state = 'open' AND len(lines) > 0 AND (valid_to IS NULL OR valid_to > valid_from + INTERVAL 1 HOUR)
