FROM cart_states
